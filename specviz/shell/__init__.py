"""The shell: what stands around the pages.

Gradio and our own scripts divide the work like this. Gradio owns the shell: the frame with its theme and tabs, the
form of Inspect with its fields, buttons and uploads, the queue of its events, and the named API for programs. Our
modules own the drawings: every page that is more than a form is one place (``parts.part``, a ``gr.HTML`` with a
constant template), which the page's modules fill from the server's own routes (``/api/…``), not through Gradio's
events. Between the two there is one bridge: a place's value, which is a small JSON string, and the one event that a
place may trigger. Scripts do not reach into Gradio's elements, and no prompt or model text passes through its
templates.
"""
