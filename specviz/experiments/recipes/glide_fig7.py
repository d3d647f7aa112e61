"""GLIDE fig. 7: which of the target's layers should the draft model read?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, some_layers

EXPERIMENT = Experiment(
    "glide-fig7",
    "Layer whose cache is read",
    paper="glide",
    figure="fig. 7",
    question="Which layer's keys and values help the draft model most, and do the lowest help at all?",
    finding="The higher the layer, the higher the acceptance; low layers still beat reading nothing (Mistral-7B).",
    note="The figure's values are drawn in the paper, not printed. Reading the layer with the bundled target's copying "
    "heads (1) pays only after about 200 steps: give the training fewer, and all layers look alike.",
    training_steps=400,
    lines=(Line("GLIDE", "glide", trains={}), Line("reads nothing", "sps", trains={}, fixed=True)),
    axes=(Axis("kv_layer", some_layers, "target layer, from 0"),),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=8,
    temperature=1.0,
    metrics=("beta", "tokens_per_step"),
)
