"""Problems of every kind of answer, for an audit without data."""

from __future__ import annotations

from isocost.tasks.text import name
from isocost.types import Message, Problem

_ROWS = (
    ("A crate holds 6 rows of 7 bottles. How many bottles are in it?", "42"),
    ("What is 58 + 76?", "134"),
    ("What is 25 times 48?", "1200"),
    ("A factory makes 1,250 screws an hour. How many does it make in 12 hours?", "15,000"),
    ("What is 7 - 12?", "-5"),
    ("What is 3 divided by 8, as a decimal?", "0.375"),
    ("What is 2.6 + 3.65?", "6.25"),
    ("What is 1/4 + 1/4?", "1/2"),
    ("What is 5/6 + 2/3, as a fraction?", r"\frac{3}{2}"),
    ("What share of 80 is 20?", "25%"),
    ("A price rises from 40 to 46. By what percentage?", r"15\%"),
    ("A shirt costs $24 and is sold at a quarter off. What is its price?", "$18"),
    ("A rope of 8.5 metres is cut by 3.5 metres. How long is it?", "5 meters"),
    ("A train takes 90 minutes and is half an hour late. How long is the trip?", "2 hours"),
    ("What is the length of the diagonal of a square with side sqrt(6)?", r"2\sqrt{3}"),
    ("What is the area of a circle with radius 3?", r"9\pi"),
    ("Expand (x + 1)^2.", "x^2 + 2x + 1"),
    ("Where does the line y = 2x + 1 meet the line y = 7?", "(3, 7)"),
    ("Which numbers solve x^2 - 5x + 6 = 0?", "2, 3"),
    ("For which x is x^2 less than 4?", "(-2, 2)"),
    ("Which planet is the largest?\nA. Mars\nB. Venus\nC. Jupiter\nD. Earth", "C"),
    ("Which number is prime?\nA. 21\nB. 29\nC. 33\nD. 51", "B"),
    ("Is 91 a prime number?", "no"),
    ("Is 97 a prime number?", "Yes"),
    ("What is the capital of France?", "Paris"),
    ("Which gas do plants take from the air?", "carbon dioxide"),
    ("Who wrote Hamlet?", "William Shakespeare"),
)
EXAMPLES = tuple(Problem(name((Message("user", q),)), (Message("user", q),), a) for q, a in _ROWS)
