"""The task families of reasoning-gym 0.1.25, as the dataset page offers them. A test compares them with the package."""

from dataclasses import dataclass

VERSION = "0.1.25"
WITHOUT_ANSWER = frozenset(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"))
"""Families whose tasks have many right answers, so that their rows contain none."""


@dataclass(frozen=True)
class Family:
    kind: str
    """The package's own category."""
    levels: int
    """The number of levels of difficulty; 0: default settings only. Levels that fail in the package are left out."""
    about: str
    """The task in a few words."""


# kind, then: name | levels | task
_TABLE = """
[algebra]
complex_arithmetic | 4 | calculate with complex numbers
intermediate_integration | 8 | antiderivatives by substitution or by parts
polynomial_equations | 4 | real solutions of an equation
polynomial_multiplication | 4 | multiply polynomials
simple_equations | 4 | a linear equation in one variable
simple_integration | 4 | antiderivatives of polynomials
[algorithmic]
ab | 4 | rewrite a line of A::B tokens to its end
base_conversion | 5 | write a number in another base
binary_alternation | 4 | fewest swaps that make bits alternate
binary_matrix | 4 | distance of each cell to the nearest 0
caesar_cipher | 2 | decrypt a Caesar cipher
count_primes | 5 | count the primes in a range
cryptarithm | 4 | digits for letters in a sum
game_of_life | 4 | the board after some generations
game_of_life_halting | 4 | whether the board comes to rest
graph_color | 4 | colour a graph
group_anagrams | 4 | group words that are anagrams
isomorphic_strings | 4 | whether letters can be mapped one to one
jugs | 3 | measure water with jugs
letter_counting | 8 | count a letter in a text
letter_jumble | 5 | unscramble the words of a sentence
manipulate_matrix | 5 | apply operations to a matrix
number_filtering | 4 | keep or remove numbers by a bound
number_sorting | 8 | sort numbers
palindrome_generation | 4 | make a palindrome of letters
palindrome_partitioning | 4 | cut a text into palindromes
pool_matrix | 4 | max or average pooling
ransom_note | 4 | whether a text can be cut from another
rotate_matrix | 5 | rotate a matrix
rotten_oranges | 4 | minutes until all oranges have rotted
sentence_reordering | 4 | order the words of a sentence
spell_backward | 5 | spell a word backward
spiral_matrix | 4 | read a matrix as a spiral
string_insertion | 4 | insert letters by a pattern
string_manipulation | 5 | transform a text by rules
string_splitting | 4 | take machines apart by rules
string_synthesis | 4 | put blocks together by rules
word_ladder | 3 | change one letter at a time
word_sequence_reversal | 4 | reverse a list of words
word_sorting | 5 | sort words by their characters
[arc]
arc_1d | 4 | the rule of a row of numbers, from examples
arc_agi | 4 | the rule of a grid, from examples (ARC-AGI-1)
rearc | 7 | the rule of a grid, made anew (RE-ARC)
[arithmetic]
basic_arithmetic | 5 | calculate an expression with several operators
bitwise_arithmetic | 10 | hexadecimal arithmetic with shifts
calendar_arithmetic | 4 | weekdays, leap years and days between dates
chain_sum | 11 | add and subtract whole numbers
count_bits | 5 | count the 1 bits of a number
decimal_arithmetic | 4 | calculate decimals to so many digits
decimal_chain_sum | 5 | add and subtract decimals
dice | 4 | odds of a total of several dice
fraction_simplification | 4 | simplify a fraction
gcd | 4 | greatest common divisor
gsm_symbolic | 0 | school mathematics in words (GSM-Symbolic)
lcm | 4 | least common multiple
leg_counting | 36 | count the legs of animals
number_format | 4 | largest or smallest of numbers written differently
power_function | 5 | a number to a power
prime_factorization | 4 | prime factors
products | 11 | multiply numbers
time_intervals | 7 | time between two moments
[code]
bf | 3 | what a Brainf*ck program prints
codeio | 4 | the input or output of a Python function
[cognition]
color_cube_rotation | 5 | the colour of a side after turns of a cube
figlet_font | 6 | read a word drawn with characters
modulo_grid | 6 | the pattern of a grid of remainders
needle_haystack | 4 | find one fact among many
number_sequence | 4 | continue a sequence
rectangle_count | 5 | count drawn rectangles
rubiks_cube | 4 | solve a cube
[games]
boxnet | 9 | plan arms that move boxes over a grid
countdown | 5 | reach a number with given numbers
emoji_mystery | 6 | decode a sentence hidden in an emoji
futoshiki | 4 | a number puzzle with inequalities
kakurasu | 4 | place ones so that weighted sums fit
knight_swap | 0 | swap knights on a small board
mahjong_puzzle | 4 | the last result of a letter-card game
maze | 4 | fewest steps through a maze
mini_sudoku | 5 | sudoku of 4 × 4
n_queens | 5 | complete a board of queens
puzzle24 | 7 | make 24 of four numbers
rush_hour | 4 | free the red car
sokoban | 14 | push boxes to their goals
sudoku | 5 | sudoku of 9 × 9
survo | 2 | fill a matrix to given sums
tower_of_hanoi | 4 | move disks from peg to peg
tsumego | 4 | capture stones in Go
[geometry]
advanced_geometry | 4 | orthocentres, incircles and angles from coordinates
simple_geometry | 4 | the missing angle of a polygon
[graphs]
course_schedule | 5 | whether all courses can be finished
family_relationships | 9 | how two members of a family are related
largest_island | 4 | the largest island of a grid
path_star | 4 | the path to a goal in a star of paths
quantum_lock | 10 | fewest presses of buttons that reach a number
shortest_path | 4 | a shortest path through a grid
[induction]
acre | 0 | which objects set off a detector, from earlier trials
list_functions | 0 | the function on lists, from examples
[logic]
aiw | 9 | Alice in Wonderland: how many sisters has her brother
circuit_logic | 5 | the output of a drawn logic circuit
knights_knaves | 4 | who tells the truth and who lies
propositional_logic | 5 | a conclusion from premises
self_reference | 10 | solutions of statements about themselves
syllogism | 4 | whether a conclusion follows
zebra_puzzles | 6 | who lives in which house
[probability]
coin_flip | 13 | the probability of so many heads
"""


def _read() -> dict[str, Family]:
    families, kind = {}, ""
    for line in _TABLE.strip().splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        else:
            name, levels, about = (part.strip() for part in line.split("|"))
            families[name] = Family(kind, int(levels), about)
    return families


FAMILIES: dict[str, Family] = _read()
"""Name -> family, in the order of their kinds."""
