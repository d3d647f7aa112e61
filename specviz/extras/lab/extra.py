"""The Lab: the papers' recipes, sweeps of one's own, methods × prompts, and their tables."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="lab",
    about="The Lab: the papers' experiments as recipes, sweeps and ablations, benchmarks of speed, and their tables",
    uses=("training",),
    commands={
        "bench": Command(
            ".bench_command", "measure", "measure speed side by side", predecessor="verify",
            first_line="measure the methods' speed on the examples",
        ),
        "lab": Command(
            ".lab_command", "measure", "run an experiment of a paper, or your own sweep", predecessor="bench"
        ),
    },
    pages=(".page.lab_page", ".page.trees_page"),
    recipes="recipes",
    web="web",
)  # fmt: skip
