"""`shop`: a small shop's service desk, in the manner of tau-bench (Yao et al., 2024, arXiv:2406.12045).

The policy reads the shop's rules and a customer's request, and calls the shop's tools, which change its state. The
reward is 1 if the final state is that of the right actions, in any order, and 0 otherwise; so a request against the
rules has to be declined with the reason, and nothing else may change. Unlike tau-bench, the customer's message is
complete and no model plays the customer: an episode is deterministic.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, Literal

from numpy.random import Generator

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tool_episode import ToolEpisode
from isocost.envs.tools import Toolbox, ToolFailed, tool
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.tasks import text
from isocost.types import Message, Problem

KINDS = ("cancel", "address", "return", "exchange", "two")
CUSTOMERS = 60
TRIES = 2000              # draws in a row that give no new request, after which there are no more
DAYS = 30                 # after delivery in which an order can be returned
FIRST = ("Ana", "Bo", "Cy", "Di", "Ed", "Flo", "Gil", "Hal", "Ida", "Joy", "Kai", "Lou")
LAST = ("Moss", "Nash", "Orr", "Pike", "Reed", "Shaw", "Tate", "Vale", "Webb", "York", "Abel", "Bell")
STREETS = ("Oak Street", "Mill Lane", "Park Road", "High Street")
ITEMS = {"lamp": ("black", "white", "brass"), "mug": ("blue", "red", "green"), "scarf": ("short", "long", "wide"),
         "bag": ("small", "medium", "large"), "kettle": ("steel", "copper", "glass")}
REASONS = ("not your order", "already shipped", "not delivered", "return period is over", "not in stock")
Reason = Literal["not your order", "already shipped", "not delivered", "return period is over", "not in stock"]
State = dict[str, Any]
RULES = f"""You are the service agent of a shop. Act for the customer by the shop's rules:
- Find the customer by e-mail first. Act only on orders of that customer; otherwise decline with "not your order".
- A pending order can be cancelled, and its address can be changed. If it is shipped or delivered, decline with
  "already shipped".
- A delivered order can be returned or exchanged, item by item, up to {DAYS} days after delivery. If it is not delivered
  yet, decline with "not delivered"; after {DAYS} days, with "return period is over".
- A refund goes to what paid the order: a card is refunded at once; a voucher becomes store credit.
- An item can be exchanged only for another variant of the same product that is in stock; otherwise decline with "not in
  stock".
- Do all that the customer asks and nothing else. Decline what the rules forbid, once for each order.
When everything is done, write a short message to the customer, without a function call."""


@dataclass(frozen=True)
class Shop(NamedOptions):
    """Which requests."""

    kind: str = ""            # one of KINDS; "": a fifth each
    declined: float = 0.3     # share of the requests that the rules forbid
    count: int = 300
    seed: int = 0             # of the shop, and of the requests

    def __post_init__(self) -> None:
        self.refuse(
            (self.kind not in ("", *KINDS), f"kind is {', '.join(KINDS)}, not {self.kind!r}"),
            (not 0 <= self.declined <= 1, f"declined is 0 to 1, not {self.declined}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


@cache
def _stored(seed: int) -> str:
    rng = chance.generator(seed, chance.Purpose.INIT, 8)
    customers: State = {}
    orders: State = {}
    for i in range(CUSTOMERS):
        first, last = FIRST[i % len(FIRST)], LAST[(i + i // len(FIRST)) % len(LAST)]
        email = f"{first.lower()}.{last.lower()}@mail.example"
        customers[email] = {"name": f"{first} {last}", "credit": 0, "orders": []}
        for status in ("pending", "shipped", "delivered", "delivered"):
            id = f"W{1000 + len(orders) * 7 + int(rng.integers(5))}"
            products = [list(ITEMS)[k] for k in rng.choice(len(ITEMS), 2, replace=False)]
            orders[id] = {
                "customer": email, "status": status, "address": _address(rng), "paid by": ("card", "voucher")[
                    int(rng.integers(2))],
                "days since delivery": (int(rng.integers(1, DAYS + 1)) if orders and rng.random() < 0.6 else
                                        int(rng.integers(DAYS + 1, 90))) if status == "delivered" else None,
                "items": [{"product": p, "variant": ITEMS[p][int(rng.integers(3))], "price": int(rng.integers(5, 80)),
                           "state": "bought"} for p in products],
            }
            customers[email]["orders"].append(id)
    stock = {p: {v: int(rng.integers(0, 4)) for v in variants} for p, variants in ITEMS.items()}
    return json.dumps({"customers": customers, "orders": orders, "stock": stock, "refunds": [], "declined": []})


def state(seed: int) -> State:
    """The shop of a seed before anything was done, as a new object."""
    made: State = json.loads(_stored(seed))
    return made


def _address(rng: Generator) -> str:
    return f"{int(rng.integers(1, 99))} {STREETS[int(rng.integers(len(STREETS)))]}"


class ShopTools:
    """The shop's tools, on its state. What the rules forbid is up to the policy; what cannot be done fails."""

    def __init__(self, state: State):
        self.state = state

    def find_customer(self, email: str) -> dict[str, Any]:
        """Find a customer.

        Args:
            email: the customer's e-mail address
        """
        if email not in self.state["customers"]:
            raise ToolFailed(f"error: there is no customer {email}", "not found")
        return copy.deepcopy(self.state["customers"][email])

    def get_order(self, order: str) -> dict[str, Any]:
        """Read an order.

        Args:
            order: the order's number, such as W1000
        """
        return copy.deepcopy(self._order(order))

    def get_stock(self, product: str) -> dict[str, int]:
        """Read how many pieces of each variant of a product are in stock.

        Args:
            product: the product, such as lamp
        """
        if product not in self.state["stock"]:
            raise ToolFailed(f"error: there is no product {product}", "not found")
        return dict(self.state["stock"][product])

    def cancel_order(self, order: str) -> str:
        """Cancel an order and refund it.

        Args:
            order: the order's number
        """
        it = self._order(order)
        if it["status"] == "cancelled":
            raise ToolFailed("error: the order is cancelled", "already done")
        it["status"] = "cancelled"
        self._refund(order, sum(i["price"] for i in it["items"] if i["state"] == "bought"))
        return "cancelled"

    def change_address(self, order: str, address: str) -> str:
        """Change the address that an order is sent to.

        Args:
            order: the order's number
            address: the new address: number and street
        """
        self._order(order)["address"] = " ".join(address.split())
        return "changed"

    def return_item(self, order: str, product: str) -> str:
        """Take an item of an order back and refund it.

        Args:
            order: the order's number
            product: the product to return
        """
        item = self._item(order, product)
        item["state"] = "returned"
        self._refund(order, item["price"])
        return "returned"

    def exchange_item(self, order: str, product: str, variant: str) -> str:
        """Exchange an item of an order for another variant of the same product.

        Args:
            order: the order's number
            product: the product to exchange
            variant: the new variant
        """
        item = self._item(order, product)
        stock = self.state["stock"][product]
        if not stock.get(variant):
            raise ToolFailed(f"error: {product} {variant} is not in stock", "not in stock")
        stock[variant] -= 1
        item["variant"] = variant
        item["state"] = "exchanged"
        return "exchanged"

    def decline(self, order: str, reason: Reason) -> str:
        """Decline what the customer asked for an order.

        Args:
            order: the order's number
            reason: why
        """
        self.state["declined"].append([order, reason])
        return "declined"

    def _order(self, order: str) -> State:
        if order not in self.state["orders"]:
            raise ToolFailed(f"error: there is no order {order}", "not found")
        found: State = self.state["orders"][order]
        return found

    def _item(self, order: str, product: str) -> State:
        for item in self._order(order)["items"]:
            if item["product"] == product and item["state"] == "bought":
                found: State = item
                return found
        raise ToolFailed(f"error: order {order} has no {product} to take back", "not found")

    def _refund(self, order: str, amount: int) -> None:
        it = self._order(order)
        if it["paid by"] == "voucher":
            self.state["customers"][it["customer"]]["credit"] += amount
        self.state["refunds"].append([order, amount])


Action = tuple[str, dict[str, str]]      # a tool's name and its arguments


def right(before: State, email: str, wanted: Action) -> Action:
    """What the rules say of a wanted action: the action, or to decline it."""
    name, given = wanted
    order = before["orders"][given["order"]]
    status, days = order["status"], order["days since delivery"]
    reason = ""
    if order["customer"] != email:
        reason = "not your order"
    elif name in ("cancel_order", "change_address"):
        reason = "" if status == "pending" else "already shipped"
    elif status != "delivered":
        reason = "not delivered"
    elif days > DAYS:
        reason = "return period is over"
    elif name == "exchange_item" and not before["stock"][given["product"]].get(given["variant"]):
        reason = "not in stock"
    return ("decline", {"order": given["order"], "reason": reason}) if reason else wanted


def after(seed: int, actions: list[Action]) -> State:
    """The state after these actions."""
    desk = ShopTools(state(seed))
    for name, given in actions:
        getattr(desk, name)(**given)
    return desk.state


def same(one: State, other: State) -> bool:
    """Whether two states are equal, whatever the order of refunds, and of declined requests."""
    def plain(s: State) -> State:
        return {**s, "refunds": sorted(s["refunds"]), "declined": sorted(s["declined"])}
    return plain(one) == plain(other)


def problems(which: Shop) -> Iterator[Problem]:
    """The requests, all different. Raises UserError if there are too few."""
    rng = chance.generator(which.seed, chance.Purpose.CHOOSE, 8)
    shop = state(which.seed)
    emails = list(shop["customers"])
    known: set[str] = set()
    for i in range(which.count):
        kind, declined = which.kind or KINDS[i % len(KINDS)], bool(rng.random() < which.declined)
        for _ in range(TRIES):
            email = emails[int(rng.integers(len(emails)))]
            kinds = [KINDS[int(k)] for k in rng.choice(4, 2, replace=False)] if kind == "two" else [kind]
            wanted = [_wanted(rng, shop, email, k) for k in kinds]
            actions = [right(shop, email, w) for w in wanted]
            asked = f"Hello, I am {shop['customers'][email]['name']} ({email}). {' '.join(_asked(w) for w in wanted)}"
            several = len({given["order"] for _, given in wanted}) == len(wanted)
            if several and declined == any(name == "decline" for name, _ in actions) and asked not in known:
                break
        else:
            raise UserError(f"shop: only {len(known)} different requests were found; lower count")
        known.add(asked)
        meta = {"source": "shop", "kind": kind, "declined": declined, "actions": actions, "seed": which.seed,
                "level": len(wanted) + declined}
        prompt = (Message("user", asked),)
        yield Problem(f"shop-{which.seed}-{text.name(prompt)}", prompt, None, meta=meta)


def _wanted(rng: Generator, shop: State, email: str, kind: str) -> Action:
    own = shop["customers"][email]["orders"]
    id = own[int(rng.integers(len(own)))] if rng.random() < 0.9 else list(shop["orders"])[
        int(rng.integers(len(shop["orders"])))]
    item = shop["orders"][id]["items"][int(rng.integers(2))]
    if kind == "cancel":
        return "cancel_order", {"order": id}
    if kind == "address":
        return "change_address", {"order": id, "address": _address(rng)}
    if kind == "return":
        return "return_item", {"order": id, "product": item["product"]}
    others = [v for v in ITEMS[item["product"]] if v != item["variant"]]
    return "exchange_item", {"order": id, "product": item["product"], "variant": others[int(rng.integers(2))]}


def _asked(wanted: Action) -> str:
    name, given = wanted
    return {
        "cancel_order": "Please cancel my order {order}.",
        "change_address": "Please send my order {order} to {address} instead.",
        "return_item": "I want to return the {product} of order {order}.",
        "exchange_item": "I want to exchange the {product} of order {order} for the variant {variant}.",
    }[name].format(**given)


class ShopEpisode(ToolEpisode):
    """One request, from the customer's message to the final state."""

    about = RULES

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.desk = ShopTools(state(problem.meta["seed"]))

    async def prepare(self) -> Toolbox:
        d = self.desk
        return Toolbox([tool(f) for f in (
            d.find_customer, d.get_order, d.get_stock, d.cancel_order, d.change_address, d.return_item, d.exchange_item,
            d.decline,
        )])

    async def score(self) -> float:
        """1 if the state is that of the right actions, else 0."""
        actions = [(name, dict(given)) for name, given in self.problem.meta["actions"]]
        return float(same(self.desk.state, after(self.problem.meta["seed"], actions)))

    def key(self) -> str:
        """The state of the shop."""
        return hashlib.sha256(json.dumps(self.desk.state, sort_keys=True).encode()).hexdigest()[:16]


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, ShopEpisode, partial(problems, Shop.of(spec)), max_turns=12, max_tokens=256)


ENVIRONMENT = EnvironmentKind("requests at a shop's service desk: tools change its state", asdict(Shop()), open_set)
