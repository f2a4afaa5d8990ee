"""`sql`: questions and changes over a small generated database, by SQL.

`sql:kind=read` asks questions whose final answer is compared with that of a reference query. `sql:kind=change` asks for
changes, and compares the whole database with one in which a reference statement was run. `sql:file=shop.sqlite` opens a
user's database read-only, for questions given with --data.

SQLite (standard library) runs in this process. Its authorizer allows reading, and writing rows where the task is a
change; a progress handler ends a statement after a fixed number of steps of its virtual machine, so that the same
statement ends at the same place everywhere; lengths, rows and memory are limited.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from numpy.random import Generator

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.threads import in_thread
from isocost.envs.tool_episode import ToolEpisode
from isocost.envs.tools import Toolbox, ToolFailed, tool
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.tasks import text
from isocost.types import Message, Problem

KINDS = ("read", "change", "both")
ROWS = 50                  # of a result that are shown
STEPS = 5_000_000          # of SQLite's virtual machine in one statement: about 0.1 s
TICK = 10_000              # of these between two calls of the progress handler
LENGTH = 1 << 20           # bytes of a text, a blob or a row
HEAP = 64 << 20            # bytes of memory, of all databases of this process together
CITIES = ("Oslo", "Lima", "Kyoto", "Turin", "Quito", "Accra")
CATEGORIES = ("books", "tools", "toys", "garden")
STATUSES = ("open", "shipped", "returned")
NAMES = ("Ada", "Ben", "Cleo", "Dara", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kit", "Lea", "Max", "Nia", "Oto",
         "Pia", "Quinn", "Rae", "Sam", "Tia")
TABLES = """
create table customers(id integer primary key, name text not null, city text not null, since integer not null);
create table products(id integer primary key, name text not null, category text not null, price integer not null,
    stock integer not null);
create table orders(id integer primary key, customer integer not null references customers(id),
    product integer not null references products(id), quantity integer not null, year integer not null,
    status text not null);
"""
_ACTIONS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_UNREPEATABLE = {"random", "randomblob", "load_extension", "current_time", "current_date", "current_timestamp"}


@dataclass(frozen=True)
class Sql(NamedOptions):
    """Which tasks: `count` of them over a database of `seed`."""

    kind: str = "read"        # read, change, or both: half of each
    level: int = 0            # 1: one table, 2: a join or a group, 3: both; 0: a third each
    count: int = 300
    seed: int = 0             # of the database, and of the tasks
    file: str = ""            # a user's database, instead of all that

    def __post_init__(self) -> None:
        self.refuse(
            (self.kind not in KINDS, f"kind is {', '.join(KINDS)}, not {self.kind!r}"),
            (not 0 <= self.level <= 3, f"level is 0 to 3, not {self.level}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
            (bool(self.file) and not Path(self.file).is_file(), f"there is no file {self.file}"),
        )


@cache
def database(seed: int) -> bytes:
    """The generated database: 20 customers, 16 products, 60 orders."""
    rng = chance.generator(seed, chance.Purpose.INIT, 7)
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    pick: Callable[[Any], Any] = lambda some: some[int(rng.integers(len(some)))]  # noqa: E731
    connection.executemany("insert into customers values(?, ?, ?, ?)", [
        (i + 1, name, pick(CITIES), int(rng.integers(2015, 2025))) for i, name in enumerate(NAMES)])
    connection.executemany("insert into products values(?, ?, ?, ?, ?)", [
        (i + 1, f"{CATEGORIES[i % 4][:-1] if i % 4 < 3 else 'plant'} {i // 4 + 1}", CATEGORIES[i % 4],
         int(rng.integers(2, 60)), int(rng.integers(0, 40))) for i in range(16)])
    connection.executemany("insert into orders values(?, ?, ?, ?, ?, ?)", [
        (i + 1, int(rng.integers(1, 21)), int(rng.integers(1, 17)), int(rng.integers(1, 6)),
         int(rng.integers(2022, 2026)), pick(STATUSES)) for i in range(60)])
    connection.commit()
    made = connection.serialize()
    connection.close()
    return made


Task = tuple[str, str]       # what is asked, and the SQL that answers it


def _question(rng: Generator, level: int) -> Task:
    city, category, status = (some[int(rng.integers(len(some)))] for some in (CITIES, CATEGORIES, STATUSES))
    year, price, least = int(rng.integers(2022, 2026)), int(rng.integers(5, 55)), int(rng.integers(1, 5))
    since = int(rng.integers(2016, 2024))
    tasks: dict[int, list[Task]] = {
        1: [
            (f"How many customers live in {city}?", f"select count(*) from customers where city = '{city}'"),
            (f"How many products cost more than {price}?", f"select count(*) from products where price > {price}"),
            (f"How many orders of {year} are {status}?",
             f"select count(*) from orders where year = {year} and status = '{status}'"),
            (f"What is the highest price of a product in the category {category}?",
             f"select max(price) from products where category = '{category}'"),
            (f"How many customers joined in {since} or later?",
             f"select count(*) from customers where since >= {since}"),
            (f"How many products of the category {category} cost at most {price}?",
             f"select count(*) from products where category = '{category}' and price <= {price}"),
        ],
        2: [
            (f"How many orders were made by customers from {city}?",
             f"select count(*) from orders o join customers c on o.customer = c.id where c.city = '{city}'"),
            (f"How many pieces of the category {category} were ordered in total?",
             "select coalesce(sum(quantity), 0) from orders o join products p on o.product = p.id where category = "
             f"'{category}'"),
            (f"How many customers have at least {least} orders of {year} or later?",
             f"select count(*) from (select 1 from orders where year >= {year} group by customer having count(*) >= "
             f"{least})"),
            (f"How many products of the category {category} were never ordered in {year}?",
             f"select count(*) from products where category = '{category}' and id not in (select product from orders "
             f"where year = {year})"),
            (f"How many orders of {year} were for products that cost more than {price}?",
             "select count(*) from orders o join products p on o.product = p.id where year = "
             f"{year} and price > {price}"),
            (f"How many {status} orders were made by customers who joined in {since} or later?",
             "select count(*) from orders o join customers c on o.customer = c.id where status = "
             f"'{status}' and since >= {since}"),
        ],
        3: [
            (f"What is the total value (price times quantity) of the {status} orders of customers from {city}? Answer "
             "0 if there are none.",
             "select coalesce(sum(price * quantity), 0) from orders o join products p on o.product = p.id "
             f"join customers c on o.customer = c.id where status = '{status}' and city = '{city}'"),
            (f"What is the largest total value (price times quantity) of one customer's orders in {year} of products "
             f"that cost at most {price}? Answer 0 if there are none.",
             "select coalesce(max(v), 0) from (select sum(price * quantity) v from orders o join products p on "
             f"o.product = p.id where year = {year} and price <= {price} group by customer)"),
            (f"From how many different cities were products of the category {category} ordered in {year}?",
             "select count(distinct city) from orders o join products p on o.product = p.id join customers c on "
             f"o.customer = c.id where category = '{category}' and year = {year}"),
        ],
    }
    return tasks[level][int(rng.integers(len(tasks[level])))]


def _change(rng: Generator, level: int) -> Task:
    city, other = (CITIES[int(i)] for i in rng.choice(len(CITIES), 2, replace=False))
    category = CATEGORIES[int(rng.integers(4))]
    year, amount, order = int(rng.integers(2022, 2026)), int(rng.integers(1, 10)), int(rng.integers(1, 61))
    tasks: dict[int, list[Task]] = {
        1: [
            (f"Raise the price of every product in the category {category} by {amount}.",
             f"update products set price = price + {amount} where category = '{category}'"),
            (f"Delete the orders of {year} that are returned.",
             f"delete from orders where year = {year} and status = 'returned'"),
            (f"Mark order {order} as shipped.", f"update orders set status = 'shipped' where id = {order}"),
            (f"All customers in {city} have moved to {other}. Record it.",
             f"update customers set city = '{other}' where city = '{city}'"),
        ],
        2: [
            (f"Mark every open order of customers from {city} as shipped.",
             "update orders set status = 'shipped' where status = 'open' and customer in (select id from customers "
             f"where city = '{city}')"),
            (f"Set the stock of every product that was never ordered in {year} to {amount}.",
             f"update products set stock = {amount} where id not in (select product from orders where year = {year})"),
            (f"Raise by {amount} the price of every product that customers from {city} ordered.",
             f"update products set price = price + {amount} where id in (select product from orders where customer in "
             f"(select id from customers where city = '{city}'))"),
            (f"Delete the orders of {year} for products of the category {category}.",
             f"delete from orders where year = {year} and product in (select id from products where category = "
             f"'{category}')"),
        ],
        3: [
            (f"For every product, add the pieces of its returned orders of {year} to its stock.",
             "update products set stock = stock + (select coalesce(sum(quantity), 0) from orders where product = "
             f"products.id and status = 'returned' and year = {year})"),
            (f"Delete the customers from {city} that have no orders, and raise by {amount} the price of the products "
             f"that customers from {city} ordered in {year}.",
             f"delete from customers where city = '{city}' and id not in (select customer from orders); update "
             f"products set price = price + {amount} where id in (select product from orders where year = {year} and "
             f"customer in (select id from customers where city = '{city}'))"),
        ],
    }
    return tasks[level][int(rng.integers(len(tasks[level])))]


def problems(which: Sql) -> Iterator[Problem]:
    """The tasks, all different; changes that change nothing are left out. Raises UserError if there are too few."""
    rng = chance.generator(which.seed, chance.Purpose.CHOOSE, 7)
    known: set[str] = set()
    made = tries = 0
    while made < which.count:
        tries += 1
        if tries > 200 * which.count:
            raise UserError(f"sql: only {made} different tasks were found; lower count")
        level = which.level or made % 3 + 1
        change = which.kind == "change" or (which.kind == "both" and made // 3 % 2 == 1)
        asked, solution = (_change if change else _question)(rng, level)
        if asked in known or (change and changed(which.seed, solution) == database_rows(database(which.seed))):
            continue
        known.add(asked)
        made += 1
        answer = None if change else reference(which.seed, solution)
        meta = {"source": "sql", "level": level, "kind": "change" if change else "read", "solution": solution,
                "seed": which.seed}
        prompt = (Message("user", asked),)
        yield Problem(f"sql-{which.seed}-{text.name(prompt)}", prompt, answer, meta=meta)


@cache
def reference(seed: int, query: str) -> str:
    """The single value that a reference query gives."""
    connection = opened(database(seed))
    try:
        return str(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


@cache
def changed(seed: int, statements: str) -> tuple[Any, ...]:
    """The rows of the database after these statements."""
    connection = opened(database(seed))
    try:
        connection.executescript(statements)
        return rows(connection)
    finally:
        connection.close()


@cache
def database_rows(data: bytes) -> tuple[Any, ...]:
    """`rows` of a serialized database."""
    connection = opened(data)
    try:
        return rows(connection)
    finally:
        connection.close()


def rows(connection: sqlite3.Connection) -> tuple[Any, ...]:
    """Every row of every table, in an order that does not depend on how they were written."""
    tables = [t for (t,) in connection.execute("select name from sqlite_master where type = 'table' order by name")]
    return tuple((t, tuple(sorted(connection.execute(f'select * from "{t}"')))) for t in tables)


def opened(data: bytes) -> sqlite3.Connection:
    """A database in memory."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    connection.deserialize(data)
    return connection


def confined(connection: sqlite3.Connection, *, writes: bool) -> sqlite3.Connection:
    """The same connection, which from now on reads, and writes rows if asked, within the limits."""
    allowed = _ACTIONS | (_WRITES if writes else set())

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        named = (second if action == sqlite3.SQLITE_FUNCTION else first) or ""
        if action not in allowed or (action == sqlite3.SQLITE_FUNCTION and named.lower() in _UNREPEATABLE):
            return sqlite3.SQLITE_DENY
        if action in _WRITES and named.startswith("sqlite_"):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    connection.execute(f"pragma hard_heap_limit = {HEAP}")
    connection.execute("pragma temp_store = 2")            # nothing is written to disk
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 20_000)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
    connection.set_authorizer(authorize)
    return connection


class Statements(ToolEpisode):
    """Answers with the help of SQL. A question is marked by its answer, a change by the database."""

    about = (
        "The tables of an SQLite database are known from `select sql from sqlite_master`. When you know the answer, "
        "write only the answer, without a function call. When you have made the change, write: done."
    )

    def __init__(self, problem: Problem, which: Sql = Sql()):
        super().__init__(problem)
        self.which = which
        self.writes = problem.meta.get("kind") == "change" and not which.file
        self.connection: sqlite3.Connection | None = None

    async def prepare(self) -> Toolbox:
        if self.which.file:
            path = Path(self.which.file).resolve().as_uri()
            connection = sqlite3.connect(f"{path}?mode=ro", uri=True, check_same_thread=False, isolation_level=None)
        else:
            connection = opened(database(self.problem.meta["seed"]))
        self.connection = confined(connection, writes=self.writes)
        return Toolbox([tool(self.sql, blocks=True)])

    def sql(self, statement: str) -> str:
        """Run one SQL statement and return its rows.

        Args:
            statement: the statement, in SQLite's dialect
        """
        assert self.connection is not None
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return int(ticks > STEPS // TICK)

        self.connection.set_progress_handler(tick, TICK)
        try:
            cursor = self.connection.execute(statement)
            found = cursor.fetchmany(ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
            said = "the statement took too many steps" if str(error) == "interrupted" else str(error) or "out of memory"
            raise ToolFailed(f"error: {said}", "SQL error") from None
        names = [d[0] for d in cursor.description or ()]
        count = cursor.rowcount
        cursor.close()
        if not names:
            return f"{max(0, count)} rows changed"
        lines = [" | ".join(names), *(" | ".join(map(_cell, row)) for row in found[:ROWS])]
        return "\n".join([*lines, *(["[more rows]"] if len(found) > ROWS else [])])

    async def score(self) -> float:
        """1 for the right answer, or the right database; 0 otherwise. A user's database has a verifier of its own."""
        if self.which.file:
            return 0.0
        if self.writes:
            wanted = changed(self.problem.meta["seed"], self.problem.meta["solution"])
            return float(await in_thread(self._state) == wanted)
        return float(_number(self.said) == _number(self.problem.answer))

    def _state(self) -> tuple[Any, ...]:
        assert self.connection is not None
        self.connection.set_progress_handler(None, 0)
        self.connection.set_authorizer(None)
        try:
            return rows(self.connection)
        except sqlite3.Error:
            return ()

    async def close(self) -> None:
        if self.connection is not None:
            self.connection.interrupt()
            await in_thread(self.connection.close)


def _cell(value: Any) -> str:
    shown = "NULL" if value is None else str(value)
    return shown if len(shown) <= 500 else shown[:500] + "..."


def _number(answer: str) -> float | str:
    """An answer as it is compared: a number if it is one, without a full stop, quotes and case."""
    plain = answer.strip().strip("`'\"").rstrip(".").strip().lower()
    try:
        return float(plain.replace(",", ""))
    except ValueError:
        return plain


def open_set(spec: str) -> EnvironmentSet:
    which = Sql.of(spec)
    make = partial(Statements, which=which)
    if which.file:
        return EnvironmentSet(spec, make, None, "", 8, 256)
    return EnvironmentSet(spec, make, partial(problems, which), max_tokens=256)


ENVIRONMENT = EnvironmentKind("questions and changes over a small database, by SQL", asdict(Sql()), open_set)
