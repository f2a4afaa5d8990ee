"""Tokenizers: one character per token for the embedded base, a chat template for all other models."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from isocost.errors import UserError, foreign
from isocost.local.embedded import named, readers
from isocost.types import PLAIN, Message


class Characters:
    """One token per character; a prompt is its messages' contents, one after the other, with no template."""

    def __init__(self, alphabet: str, end: int):
        if len(set(alphabet)) != len(alphabet):
            raise UserError("the alphabet holds a character twice")
        self.alphabet, self.ends, self.size = alphabet, (end,), len(alphabet)   # size: tokens are below it
        self._id = {c: i for i, c in enumerate(alphabet)}
        self._character = _Characters(enumerate(alphabet))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        tokens: list[int] = []
        for m in messages:
            tokens += self.encode(m.content)
            if m.role == "assistant":
                tokens += self.ends[:1]
        return tokens

    def answer(self, messages: Sequence[Message]) -> list[int]:
        return self.prompt(messages)

    def encode(self, text: str) -> list[int]:
        try:
            return [self._id[c] for c in text]
        except KeyError as e:
            name, others = named(self.alphabet), [*readers(text), "smollm2"]
            raise UserError(
                f"{e.args[0]!r} in {text[:60]!r} is not in this model's alphabet {self.alphabet!r}, the only "
                f"characters that {name} supports: use problems in this alphabet, or another model with --model "
                f"(such as {' or '.join(others)})"
            ) from None

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(self._character.__getitem__, tokens))


class _Characters(dict[int, str]):
    """The character of each id; none of ids that have none, such as the end's."""

    def __missing__(self, token: int) -> str:
        return ""


class HubTokenizer:
    """A Hugging Face tokenizer.json with its chat template.

    Special-token spellings inside a message stay plain text, so message text cannot open a turn. Without a template
    a prompt is the contents joined by newlines, behind the tokens that the tokenizer puts before any text, such as
    `<s>`; so is a plain text. A template writes its own. Raises UserError if the template rejects the messages.
    """

    def __init__(self, tokenizer_json: str, ends: Sequence[int], template: str | None = None,
                 names: Mapping[str, str] | None = None):
        try:
            from tokenizers import Tokenizer
        except ImportError as e:
            raise UserError("this model needs the library `tokenizers`: pip install tokenizers") from e
        with foreign("tokenizer.json", "fetch or export the model again"):
            self._special, self._plain = Tokenizer.from_str(tokenizer_json), Tokenizer.from_str(tokenizer_json)
            self.size = 1 + max(self._special.get_vocab(with_added_tokens=True).values(), default=-1)
        self._plain.encode_special_tokens = True
        spellings = [t.content for t in self._special.get_added_tokens_decoder().values() if t.special]
        longest_first = sorted(spellings, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, longest_first))) if spellings else None
        self.ends, self._names = tuple(dict.fromkeys(ends)), dict(names or {})
        self._template = None if template is None else compile_template(template)
        framed, bare = (self._special.encode("a", add_special_tokens=own).ids for own in (True, False))
        # The post-processor of tokenizer.json may also add an end; a prompt goes on, so it has none.
        self._begin = framed[: next((i for i in range(len(framed)) if framed[i : i + len(bare)] == bare), 0)]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        if self._template is None or [m.role for m in messages] == [PLAIN]:
            return self._begin + self.encode("\n".join(m.content for m in messages))
        return self._encode_rendered(*self._render(messages, True))

    def answer(self, messages: Sequence[Message]) -> list[int]:
        """The template's words between the policy's own end token and its next word.

        Raises UserError when the template rewrites earlier turns.
        """
        if [m.role for m in messages] == [PLAIN]:
            return self.encode(messages[0].content)
        if self._template is None:
            return self.encode("\n" + "\n".join(m.content for m in messages) + "\n")
        said = "\ue001"
        before = [Message("user", "?"), Message("assistant", said)]
        (head, _), (whole, guard) = self._render(before, False), self._render([*before, *messages], True)
        if not whole.startswith(head):
            raise UserError("the chat template rewrites earlier turns; a dialogue cannot be continued token by token")
        after = head[head.rindex(said) + 1 :] + whole[len(head) :]
        for end in self.ends:
            after = after.removeprefix(self._special.id_to_token(end) or "\ue001")
        return self._encode_rendered(after, guard)

    def encode(self, text: str) -> list[int]:
        return self._plain.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._special.decode([int(t) for t in tokens if t not in self.ends], skip_special_tokens=False)

    def _render(self, messages: Sequence[Message], generation: bool) -> tuple[str, str]:
        """The template's text, and the character that breaks special spellings inside contents, if there are any."""
        data = [{"role": m.role, "content": m.content} for m in messages]
        guard = ""
        if self._marks is not None and any(self._marks.search(m.content) for m in messages):
            guard = next(chr(c) for c in range(0xE002, 0xF8FF) if not any(chr(c) in m.content for m in messages))
            for m in data:
                m["content"] = self._marks.sub(lambda found: found[0][0] + guard + found[0][1:], m["content"])
        assert self._template is not None
        with foreign("the chat template", "correct it, or use problems that it supports"):
            return self._template.render(messages=data, add_generation_prompt=generation, **self._names), guard

    def _encode_rendered(self, text: str, guard: str) -> list[int]:
        if not guard or self._marks is None:
            return self._special.encode(text, add_special_tokens=False).ids
        ids: list[int] = []
        at = 0
        for mark in self._marks.finditer(text):
            ids += self.encode(text[at : mark.start()].replace(guard, ""))
            ids += self._special.encode(mark[0], add_special_tokens=False).ids
            at = mark.end()
        return ids + self.encode(text[at:].replace(guard, ""))


def compile_template(source: str) -> Any:
    """A chat template as Hugging Face compiles it: sandboxed, and without a clock.

    The sandbox keeps a template from Python and from files; its time and the size of its output are not limited.
    Raises UserError if it is not a template.
    """
    try:
        from jinja2 import nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.parser import Parser
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as e:
        raise UserError("this model's chat template needs `jinja2`: pip install jinja2") from e

    def refuse(message: str) -> None:
        raise UserError(f"the chat template rejects these messages: {message}")

    class Generation(Extension):
        """{% generation %} marks what a model wrote; transformers renders its content, in a scope of its own."""

        tags = {"generation"}     # noqa: RUF012 - jinja2 declares no class variable

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def tojson(x: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
               sort_keys: bool = False) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    with foreign("the chat template", "correct chat_template.jinja, or chat_template in tokenizer_config.json"):
        return env.from_string(source)
