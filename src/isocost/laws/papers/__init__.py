"""Laws of other papers, each with its numbers as tests; `known` lists them and fits those of one variable."""
