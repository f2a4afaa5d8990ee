"""Who may know whom, read off the syntax trees: the core knows no method, methods know no machinery, laws no torch."""

import ast
import os
import subprocess
import sys
import textwrap
from functools import cache

from isocost import methods
from isocost.runs.files import DIVERGED
from trees import PACKAGE, nodes, sources

ROOMS = (
    "screen", "errors", "disk", "core", "stats", "tasks", "scorers", "parts", "strategies", "fast", "methods", "serve",
    "envs", "local", "worlds", "control", "contract", "runs", "laws", "planner", "trainers", "steps", "compare",
    "doctor", "report", "cli", "api",
)
DOORS = {("isocost.screen.display", "isocost.report.section")}     # lazy: a notebook shows the rows as the report does
LARGEST = 600       # lines of a file
PARAMETERS = 8      # of a function
# What is of n and B: methods and strategies, laws of n, the planner that compares n, and what names both for a trainer
# or for a user (`isocost import`'s options, a prescription's properties). All else holds an arm.
OF_N = ("stats", "methods", "strategies", "laws", "planner", "trainers.driving.command", "trainers.driving.export",
        "trainers.reading.names", "steps.outside.importing", "steps.training.plans")
OF_SETTINGS = tuple(f"isocost.{room}" for room in ("methods", "strategies", "scorers", "parts"))
CORE = ("loop", "feed", "pack", "ledger", "seams", "types", "meter", "chance", "world", "runs/shelf", "runs/evaluate",
        "worlds", "local")
NAMES = set(methods.names())


@cache
def every():
    """The text of every module, by the name it is imported under."""
    return {f"isocost.{name.removesuffix('.py').replace('/', '.')}": source for name, source in sources().items()}


def files(*parts):
    """Those of these modules and packages."""
    roots = [f"isocost.{part.replace('/', '.')}" for part in parts]
    assert all(below(every(), root) for root in roots)
    return {name: every()[name] for name in below(every(), *roots)}


@cache
def imported(source):
    """Everything a file imports, wherever in it, as dotted names (of modules and of what is taken from them)."""
    out = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            out |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            out |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
    return frozenset(out)


def below(names, *roots):
    return sorted(n for n in names if any(n == r or n.startswith(f"{r}.") for r in roots))


def compared(source, names):
    """Strings that are compared with, or matched, and name a method."""
    found = set()
    for node in nodes(source):
        inside = []
        if isinstance(node, ast.Compare):
            inside = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            inside = [node.value]
        elif isinstance(node, ast.Dict):
            inside = [k for k in node.keys if k]
        for part in inside:
            found |= {c.value for c in ast.walk(part) if isinstance(c, ast.Constant) and c.value in names}
    return found


def names_read(source):
    """Lines that take `.name` of a recipe: of `recipe`, of `r`, of `anything.recipe`."""
    return [
        n.lineno for n in nodes(source)
        if isinstance(n, ast.Attribute) and n.attr == "name"
        and getattr(n.value, "id", getattr(n.value, "attr", "")) in ("recipe", "r")
    ]


def banned_in(found, *roots):
    """Module -> what it imports of these."""
    return {name: bad for name, source in found.items() if (bad := below(imported(source), *roots))}


def test_the_core_imports_no_method_and_no_part_and_branches_on_no_recipes_name():
    core = files(*CORE)
    assert banned_in(core, "isocost.methods", "isocost.parts") == {}
    assert {name: found for name, source in core.items() if (found := compared(source, NAMES))} == {}
    assert {name: lines for name, source in core.items() if (lines := names_read(source))} == {}


def test_methods_and_parts_import_no_loop_no_feed_and_no_world_of_their_own():
    banned = ("loop", "feed", "local", "worlds", "runs", "steps", "cli", "tasks", "laws", "planner", "report")
    found = files("methods", "parts")
    del found["isocost.methods.__init__"]
    assert banned_in(found, *(f"isocost.{b}" for b in banned)) == {}


def test_laws_and_report_import_no_torch_and_no_trainer():
    banned = ("loop", "feed", "pack", "local", "runs.run", "runs.policy", "runs.driver", "parts", "worlds", "world",
              "ops", "runs.evaluate", "steps")
    found = files("stats", "laws", "planner", "report")
    results = {"isocost.report.section": found.pop("isocost.report.section")}    # it reads results for their rows
    assert banned_in(found, "torch", "safetensors", *(f"isocost.{b}" for b in banned)) == {}
    assert banned_in(results, "torch", "safetensors", *(f"isocost.{b}" for b in banned if b != "steps")) == {}
    del found["isocost.report.sections.recipe"]      # it compares a record's recipe with the method as shipped
    assert banned_in(found, "isocost.methods", "isocost.seams") == {}


def test_the_driver_of_runs_knows_no_tokens_no_problems_and_no_recipes():
    """What it drives may be anything that fits its protocol."""
    banned = ("loop", "feed", "pack", "batch", "ledger", "seams", "recipe", "world", "worlds", "tasks", "envs", "local",
              "methods", "runs.policy", "runs.job", "runs.evaluate", "runs.samples", "runs.shelf")
    assert below(imported(files("runs/driver")["isocost.runs.driver"]), *(f"isocost.{b}" for b in banned)) == []


def test_control_imports_nothing_of_tokens():
    """Its tasks, agents and loop know no rollout, no problem and no model that writes."""
    may = {"chance", "units", "errors", "recipe", "traits", "found", "meter", "stats", "disk", "local.native",
           "control"}
    found = {w for o, w, *_ in graph(every()) if below([o], "isocost.control")}
    assert [w for w in sorted(found) if not below([w], *(f"isocost.{x}" for x in may))] == []
    assert below(imported("from isocost import loop"), "isocost.loop") == ["isocost.loop"]


def room(module):
    """The folder that a module is in; the top-level modules are the core, the package itself and its `-m` the API.
    Errors are below the core: text and disk need them."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in ("__main__", "testing"):
        return "api"
    return parts[1] if (PACKAGE / parts[1]).is_dir() or parts[1] == "errors" else "core"


def graph(sources):
    """(module, module that it imports, line, whether inside a function), of modules by name -> source."""
    out = set()
    for name, source in sources.items():
        own = name.removesuffix(".__init__")
        for node in nodes(source):
            named = []
            if isinstance(node, ast.Import):
                named = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                named = [f"{node.module}.{a.name}" for a in node.names]
            for wanted in named:
                while wanted and wanted not in sources and f"{wanted}.__init__" not in sources:
                    wanted = wanted.rpartition(".")[0]
                if wanted and wanted != own:
                    out.add((own, wanted, node.lineno, node.col_offset > 0))
    return out


def upward(edges):
    """Imports of a later room, as text, by (room, later room)."""
    found = {}
    for own, wanted, line, lazy in sorted(edges):
        here, there = room(own), room(wanted)
        if ROOMS.index(there) > ROOMS.index(here) and not (lazy and (own, wanted) in DOORS):
            found.setdefault((here, there), []).append(f"{own}:{line} imports {wanted}")
    return found


def circles(edges):
    """Groups of two or more modules that import each other, directly or through others (Tarjan 1972)."""
    after = {}
    for own, wanted, *_ in edges:
        after.setdefault(own, set()).add(wanted)
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in after.get(v, ()):
            if w not in index:
                visit(w)
            low[v] = min(low[v], low[w] if w in stack else low[v])
        if low[v] == index[v]:
            group = stack[stack.index(v):]
            del stack[stack.index(v):]
            found.extend([sorted(group)] if len(group) > 1 else [])

    for v in sorted(after):
        if v not in index:
            visit(v)
    return found


def test_a_room_imports_only_rooms_above_it():
    """Everywhere, inside functions too."""
    assert upward(graph(every())) == {}


def test_only_the_engine_and_the_learner_of_one_machine_name_the_second_forms():
    """All else reaches `fast` by `World.fast`, which may be None: the plain form alone says what is right."""
    may = ("isocost.fast", "isocost.local")
    assert [n for n, s in every().items() if not below([n], *may) and below(imported(s), "isocost.fast")] == []
    assert below(imported("from isocost import fast"), "isocost.fast") == ["isocost.fast"]


def test_a_second_form_is_taken_in_two_places_of_the_core_and_by_the_writer_of_the_journal():
    def takes(source):
        return any(isinstance(node, ast.Attribute) and node.attr == "fast" for node in ast.walk(ast.parse(source)))

    assert {n for n, s in every().items() if takes(s)} == {"isocost.feed", "isocost.credit", "isocost.runs.policy"}


def test_no_modules_import_each_other():
    assert circles(graph(every())) == []


def test_no_file_is_too_long_to_read():
    assert {n: k for n, s in every().items() if (k := len(s.splitlines())) >= LARGEST} == {}


def crowded(source):
    """The functions of more than `PARAMETERS` parameters, with their lines; what a ** takes is fields of a value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            a = node.args
            names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs) if x.arg not in ("self", "cls")]
            if len(names) > PARAMETERS:
                yield f"{node.lineno} {getattr(node, 'name', 'lambda')} {len(names)}"


def test_no_function_has_more_parameters_than_can_be_told_apart():
    """Of methods, strategies, scorers and parts a function's signature is the schema of its settings. All others take
    the thing they are."""
    planted = "def f(a, b, c, d, /, e, g, h, *, i, j=1): ...\nclass C:\n    def f(self, a, b, c, d, e, f, g, h, **k): 0"
    assert list(crowded(planted)) == ["1 f 9"]
    found = {n: list(crowded(s)) for n, s in every().items() if not below([n], *OF_SETTINGS)}
    assert {n: many for n, many in found.items() if many} == {}


def test_the_reason_of_a_run_that_diverged_has_one_name():
    """Code compares with `DIVERGED` of runs/files.py."""
    by_hand = {name for name, source in every().items() if compared(source, {DIVERGED})}
    assert by_hand == set()


def test_only_the_environments_own_libraries_are_ever_unpickled_or_compiled():
    """Nothing is unpickled, and nothing needs a C++ compiler: there is no compiled path to fall back from."""
    for name, source in every().items():
        got = imported(source)
        assert below(got, "pickle", "dill", "cloudpickle", "torch.utils.cpp_extension", "triton", "numba") == [], name
        for node in nodes(source):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "compile")}, name
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.load":
                assert {k.arg: ast.unparse(k.value) for k in node.keywords}.get("allow_pickle") == "False", name


def fresh(code):
    """A few lines, run in a process of their own."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


WITHOUT_TORCH = (
    "isocost", "isocost.cli.commands", "isocost.runs.files", "isocost.runs.job", "isocost.ledger",
    "isocost.worlds.setting", *(f"isocost.{room}.*" for room in (
        "laws", "planner", "report", "trainers", "steps", "compare", "envs")),
)


def test_reading_planning_and_reporting_load_no_torch():
    """Neither these modules nor, with a star, any below: torch takes a second to import, longer than most commands."""
    code = f"""
        import importlib, pkgutil, sys
        sys.modules["torch"] = None         # its import is an ImportError
        loading = []
        for name in {(*WITHOUT_TORCH, "isocost.loop")!r}:
            try:
                top = importlib.import_module(name.removesuffix(".*"))
                below = pkgutil.walk_packages(top.__path__, f"{{top.__name__}}.") if name.endswith("*") else ()
                modules = [m.name for m in below]
            except ImportError:
                modules = [name]
            for module in modules:
                try:
                    importlib.import_module(module)
                except ImportError:
                    loading.append(module)
        print(*loading)
    """
    assert fresh(code).stdout.split() == ["isocost.loop"]      # which trains


def test_commands_that_read_load_no_torch_and_no_package_of_an_extra(tmp_path):
    """They import the text of what they print when they print it, and a wire when something is sent over it."""
    code = f"""
        from click.testing import CliRunner
        from isocost.cli.commands import main
        for words in (["ls", {str(tmp_path)!r}], ["envs"], ["laws"]):
            assert CliRunner().invoke(main, words).exit_code == 0
        import sys
        print(*sys.modules)
    """
    loaded = set(fresh(code).stdout.split())
    assert not {"torch", "scipy.stats", "httpx2", "starlette", "uvicorn", "websockets"} & loaded


def test_a_plant_is_found():
    """The rules above see what they forbid."""
    bad = "def f(recipe):\n    import isocost.methods.grpo\n    if recipe.name == 'grpo':\n        return 1\n"
    assert below(imported(bad), "isocost.methods") == ["isocost.methods.grpo"]
    assert compared(bad, NAMES) == {"grpo"}
    assert names_read(bad) == [3] and names_read("class F:\n    def g(self):\n        return self.recipe.name\n") == [3]
    a, b = "import isocost.cli.text\n", "def f():\n    from isocost.steps import one\n"
    edges = graph({"isocost.steps.one": a, "isocost.cli.text": b, "isocost.steps.__init__": ""})
    assert upward(edges) == {("steps", "cli"): ["isocost.steps.one:1 imports isocost.cli.text"]}
    assert circles(edges) == [["isocost.cli.text", "isocost.steps.one"]]


def sizes_in(source):
    """The functions that take a parameter n or B, and the classes that have one, with their lines."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            args = node.args
            if {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)} & {"n", "B"}:
                yield f"{node.lineno} {getattr(node, 'name', 'lambda')}"
        elif isinstance(node, ast.ClassDef):
            fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            if (fields | {n.name for n in node.body if isinstance(n, ast.FunctionDef)}) & {"n", "B"}:
                yield f"{node.lineno} {node.name}"


def test_only_what_is_of_n_and_b_has_a_parameter_or_a_field_of_that_name():
    planted = "def f(a, *, B): ...\nclass C:\n    n: int\nclass D:\n    def B(self): ...\ng = lambda n: n\n"
    assert {x.split()[1] for x in sizes_in(planted)} == {"f", "C", "D", "lambda"}
    may = tuple(f"isocost.{x}" for x in OF_N)
    found = {name: list(sizes_in(source)) for name, source in every().items()}
    others = [f"{name}:{place}" for name, places in found.items() for place in places if not below([name], *may)]
    assert others == [], "hold an arm (isocost.runs.arm)"
    assert all(any(below([name], x) and places for name, places in found.items()) for x in may), "one is not needed"


def doubles(sources):
    """class name -> the modules that define it, where more than one does; a private one counts once in each room."""
    homes = {}
    for name, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.ClassDef):
                homes.setdefault((node.name, room(name) if node.name.startswith("_") else ""), []).append(name)
    return {name: where for (name, _), where in homes.items() if len(where) > 1}


def test_a_class_name_exists_once_in_the_package():
    """A private class may share its name with one of another room, where nobody can mean both."""
    assert doubles({"isocost.a": "class A: ...\nclass _B: ...", "isocost.runs.b": "def f():\n    class A: ..."}) == {
        "A": ["isocost.a", "isocost.runs.b"]}
    planted = {f"isocost.{name}": f"class _B: ...  # {name}" for name in ("runs.a", "runs.b", "cli.c")}
    assert doubles(planted) == {"_B": ["isocost.runs.a", "isocost.runs.b"]}
    assert doubles(every()) == {}
