"""Phrases that isocost does not use, each with what to write instead.

The field's terms are in docs/glossary.md. A phrase is here if it has one plain replacement and no other good use, so a
hit is always a mistake. Patterns ignore case; a blank stands for any white space.
"""

# pattern: write instead
INSTEAD = {
    # what is not known
    r"(?:can|could|cannot|can not|could not) (?:mostly )?(?:not )?be told\b": "is not identified",
    r"(?:is|are|was|were|be|been|being) (?:not )?told\b": "is reported, is given, is detected",
    r"(?:can|could|cannot) (?:be )?told\b": "can be distinguished",
    r"\btold apart\b": "distinguished",
    r"\bnobody (?:can|could) (?:tell|say|know)\b": "it is not known",
    r"\bnobody knows\b": "it is not known",
    r"\banyone's guess\b": "not identified",
    r"\blaw:? (?:was |is )?(?:refuse[ds]?)\b": "law: not identified",
    r"\b(?:where|when|if|why|that) (?:it|the law|a law|this law) refuse[sd]\b": "if the law is not identified",
    r"\ba law that (?:refuses|speaks)\b": "a law that is not identified; an identified law",
    r"\b(?:would|will) settle (?:it|this)\b": "to resolve",
    r"\bis open by\b": "is uncertain by",
    r"\bwithout a word\b": "silently",
    # power and comparisons
    r"\bseeds (?:an arm )?(?:can )?see\b": "minimum detectable difference with these seeds",
    r"\bsees? differences? of\b": "minimum detectable difference",
    r"\ban arm see\b": "minimum detectable difference",
    r"\bbeside it:": "not in the budget:",
    r"\bto be surer\b": "to reduce the uncertainty",
    r"\b(?:tell|tells|told) most\b": "reduce the uncertainty most",
    r"\bthe dearest\b": "the most expensive",
    r"\bsurest\b": "most certain",
    r"\bsurely\b": "with high probability, with its number",
    r"\bmade half of its gain\b": "past half of its gain",
    # splits
    r"\bproblems that (?:choose|are reported)\b": "validation split; test split",
    r"\bthe half that (?:chooses|is reported)\b": "validation split; test split",
    # settings and input
    r"\basked (?:something else|otherwise|anew)\b": "has different settings; plan again",
    r"\bof its own it takes\b": "method defaults ... are overridden",
    r"; not taken\b": "overridden",
    r"'[^']*' is none\b": "expected ..., got ...",
    r", a whole number\b": "expected an integer",
    r"\bno record bills\b": "not counted in any budget",
    r"\btelling this (?:took|cost)\b": "estimating the cost used",
    # riddles and personification
    r"\bas far as a forecast goes\b": "forecasts are capped at ...",
    r"\b(?:is|are|was|were|not|none|nothing)? ?to be had\b": "available; can be computed",
    r"\bcannot be had\b": "is not available",
    r"\b(?:come|comes|came|coming) home\b": "return",
    r"\b(?:were|was|is|are|been|be) put by\b": "deferred",
    r"\bput by\b": "deferred",
    r"\bheed(?:s|ed|ing)?\b": "check",
    r"\bwhoever\b": "name the thing",
    r"\bwhosoever\b": "name the thing",
    r"\bwhence\b": "from which",
    r"\blest\b": "so that ... not",
    r"\bone who knows\b": "an oracle that knows",
    r"\bevenness of progress\b": "uniformity of gains",
    r"\bunlearn(?:ed|t|s)? since\b": "regressed vs. base",
    r"\bin the air\b": "in flight",
    r"\bhold(?:s|ing)? (?:it|them|this|its|the \w+|\w+'s \w+) against\b": "compare with",
    r"\b(?:is|are|was|were|be|been) held against\b": "is compared with, is tested on",
    r"\bbytes depend on it\b": "results are reproducible only at a fixed value",
    r"\bhas no opinion\b": "gives no score",
    r"\btakes? its word\b": "name the check",
    r"\bbegun and given up\b": "started and abandoned",
    r"\bgiven up on\b": "abandoned, stopped",
}
