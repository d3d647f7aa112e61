"""Publishing: a static site, datasets, figures for papers, tools for assistants."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="publish",
    about="Publishing: a static site with a player, datasets of runs, figures for papers, tools for assistants (MCP)",
    commands={
        "figure": Command(".figure_command", "share", "a step, a comparison or a race as a vector figure"),
        "publish": Command(".publish_command", "share", "runs as a static site: a folder, or a Space on the hub"),
        "push": Command(".push_command", "share", "add runs to a dataset: a folder, or one on the Hugging Face hub"),
        "pull": Command(".pull_command", "share", "write the runs of a dataset as trace files"),
        "explain": Command(".explain_command", "share", "why steps came as they did, in the inspector's sentences"),
        "mcp": Command(".mcp_command", "share", "the tools for an assistant, over the Model Context Protocol"),
    },
    pages=(".page",),
    app=(".app",),
    web="web",
)
