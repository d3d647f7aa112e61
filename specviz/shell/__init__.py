"""The shell: Gradio owns what stands around the pages, our modules own the drawings.

Gradio has the page's layout, its tabs, the prompt's fields, uploads and buttons, and the named API. Everything drawn
is a part (``parts.part``): an empty place that one module of ``assets/web`` fills, which asks our own routes under
``api/`` for what it shows. The two meet in three ways only: a part's value goes to its module (``watch``), a module
triggers an event of its own part, to which Python listens as to any other (``form.run`` starts a run, ``brand.go``
shows a tab), and an event of Gradio's may be told to the modules (``specviz:tab``, ``specviz:stop``). No script
clicks Gradio's buttons, changes its elements or reads its state from them.
"""
