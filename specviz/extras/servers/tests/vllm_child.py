"""Run by test_vllm_live.py in vLLM's own environment: chats of a real engine, as JSON on its last line.

python vllm_child.py MODEL_FOLDER chats|crowd
python vllm_child.py MODEL_FOLDER heads HEAD_FOLDER ...
SPECVIZ_RECORD=FOLDER python vllm_child.py MODEL_FOLDER overhead PROMPTS.jsonl PAIRS    (Spec-Bench's form)
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip
TEXTS = [
    "Write the word list again in the same order: the red fox, the grey wolf, the brown bear, the red fox.",
    "Repeat this line twice: def area(width, height): return width * height",
    "Copy the sentence and then say it once more: the old lamp stood beside the old door of the old house.",
    "Count from one to twelve in words, then count from one to twelve in words again.",
]


def engine(model, **more):
    from vllm import LLM

    drafting = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    return LLM(
        model=model, dtype="float32", max_model_len=1024, enforce_eager=True, disable_log_stats=False,
        **{"speculative_config": drafting, **more},
    )  # fmt: skip


def register_kernels_once():
    """After the first engine: a second one of the process would register its kernels again, and fail."""
    from vllm.platforms import current_platform

    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)


def counters(llm):
    found = {m.name: m.value for m in llm.get_metrics() if "spec_decode" in m.name and hasattr(m, "value")}
    return {name.split("spec_decode_num_")[-1]: value for name, value in found.items()}


def chats(model):
    """Greedy and drawn chats: what was answered, the server's counters, processor time, and `signatures`."""
    from vllm import SamplingParams

    known, llm = signatures(), engine(model)
    rows = [[{"role": "user", "content": text}] for text in TEXTS]
    clock, result = time.process_time(), {}
    sampling = {"greedy": {"temperature": 0}, "drawn": {"temperature": 0.8, "top_p": 0.9, "seed": 3}}
    for name, settings in sampling.items():
        params = SamplingParams(max_tokens=48, extra_args={"specviz": 1}, **settings)
        result[name] = [list(a.outputs[0].token_ids) for a in llm.chat(rows, params, use_tqdm=False)]
    return {**result, "counters": counters(llm), "cpu": time.process_time() - clock, "signatures": known}


def heads(model, *folders):
    """Greedy chats drafted with each EAGLE-3 head that specviz exported, five tokens at a time."""
    from vllm import SamplingParams

    rows = [[{"role": "user", "content": f"{text}{end}"}] for text in TEXTS for end in ("", " Explain it, too.")]
    params, results, engines = SamplingParams(max_tokens=32, temperature=0, extra_args={"specviz": 1}), [], []
    for folder in folders:
        llm = engine(model, speculative_config={"method": "eagle3", "model": folder, "num_speculative_tokens": 5})
        register_kernels_once()
        engines.append(llm)  # one that goes takes what all of a process share with it
        before = counters(llm)
        answers = [list(answer.outputs[0].token_ids) for answer in llm.chat(rows, params, use_tqdm=False)]
        results.append({"answers": answers} | {name: n - before.get(name, 0) for name, n in counters(llm).items()})
    return results


def crowd(model):
    """Sixty-four requests at a time in a small cache (some are preempted), of which twenty are aborted."""
    from vllm import SamplingParams

    llm = engine(model, max_num_seqs=64, num_gpu_blocks_override=40)
    inner, ended = llm.llm_engine, {}
    for number in range(64):
        params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
        inner.add_request(str(number), TEXTS[number % 4] + f" ({number % 7})", params)
    turn = 0
    while inner.has_unfinished_requests():
        for output in inner.step():
            if output.finished:
                ended[output.request_id] = list(output.outputs[0].token_ids)
        turn += 1
        if turn == 4:
            inner.abort_request([str(number) for number in range(0, 60, 3)])
    taps = _taps()
    inner.step()
    taps.recorder.flush()
    return {"ended": ended, "running": len(taps.recorder.running), "passed": len(taps.skipped_ids)}


def overhead(model, prompts, pairs):
    """Processor time of 16 chats of 64 tokens, recorded ÷ plain: two engines in one process take their steps in turn,
    so that a busy machine slows both alike; the recorder's thread counts for the recorded one whenever it computes.
    Which engine is recorded changes from pair to pair. ``own``: what the recorder's functions took by their threads'
    clocks.
    """
    from vllm import SamplingParams

    from specviz.extras.servers import recorder, vllm

    own = [0.0]
    for owner, name in (
        (vllm, "_before_v1"),
        (vllm, "to_host"),
        (recorder.ServerRecorder, "_add"),
        (recorder.ServerRecorder, "_write"),
    ):
        setattr(owner, name, _clock(getattr(owner, name), own))
    engines = [engine(model, enable_prefix_caching=False)]
    register_kernels_once()
    engines.append(engine(model, enable_prefix_caching=False))
    rows = [json.loads(line) for line in Path(prompts).read_text(encoding="utf-8").splitlines()]
    chats = [[{"role": "user", "content": row["turns"][0][:1200]}] for row in rows[:: len(rows) // 16][:16]]
    ids = [
        engines[0].get_tokenizer().apply_chat_template(c, add_generation_prompt=True, return_dict=False) for c in chats
    ]
    result = []
    for number in range(int(pairs) + 1):  # the first one opens the tokenizer, and is not counted
        recorded = number % 2
        answers, seconds, before, turn, own[0] = ({}, {}), [0.0, 0.0], counters(engines[recorded]), 0, 0.0
        for which, one in enumerate(engines):
            for place, prompt in enumerate(ids):
                extra = {"specviz": 1} if which == recorded else None
                asked = SamplingParams(temperature=0, max_tokens=64, extra_args=extra)
                one.llm_engine.add_request(f"{number}-{which}-{place}", {"prompt_token_ids": prompt}, asked)
        thread = _thread_s()
        while any(one.llm_engine.has_unfinished_requests() for one in engines):
            turn += 1
            for which in (0, 1) if turn % 2 else (1, 0):
                clock = time.process_time() - _thread_s()
                for output in engines[which].llm_engine.step():
                    if output.finished:
                        answers[which][output.request_id.split("-")[2]] = list(output.outputs[0].token_ids)
                seconds[which] += time.process_time() - _thread_s() - clock
        clock = time.process_time() - _thread_s()
        _taps().end(list(_taps().recorder.running))
        _taps().recorder.flush()
        seconds[recorded] += time.process_time() - clock - thread  # with all that the thread computed
        after = counters(engines[recorded])
        told = {name: value - before.get(name, 0) for name, value in after.items()}
        same = sum(answers[0][place] == answers[1][place] for place in answers[0])
        plain = seconds[1 - recorded]
        pair = {"ratio": seconds[recorded] / plain, "own": own[0] / plain, "seconds": seconds, "same": same, **told}
        print(json.dumps(pair), file=sys.stderr, flush=True)
        result.append(pair)
    return result[1:]


def _thread_s():
    """Seconds that the recorder's thread has computed."""
    recorder = _taps().recorder
    return time.clock_gettime(time.pthread_getcpuclockid(recorder._thread.ident)) if recorder else 0.0


def _clock(inner, total):
    def call(*args, **more):
        clock = time.thread_time()
        try:
            return inner(*args, **more)
        finally:
            total[0] += time.thread_time() - clock

    return call


def signatures():
    """The reason why the plugin would wrap nothing, runner by runner; None where the signatures are the known ones."""
    from specviz.extras.servers import vllm as plugin

    owner, v2 = plugin._class(*plugin.V1), plugin._class(*plugin.V2)
    samplers = [plugin.differing(plugin._class(*at), {"__call__": known}) for at, known in plugin.V2_SAMPLERS.items()]
    return {"v1": plugin.differing(owner, plugin.V1_KNOWN), "v2": [plugin.differing(v2, plugin.V2_KNOWN), *samplers]}


def _taps():
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    return GPUModelRunner._specviz


if __name__ == "__main__":
    result = globals()[sys.argv[2]](sys.argv[1], *sys.argv[3:])
    if os.environ.get("SPECVIZ_RECORD"):
        _taps().recorder.close()
    print("\n" + json.dumps(result))
