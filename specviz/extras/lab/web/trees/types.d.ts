/* What ``api/trees`` answers (specviz/pages/trees/service.py), and what is drawn of it. Global. */

/** Numbers that are null where this machine was not measured. */
interface TreePoint {
  size: number; rows: number; candidates: number; prompts: number; R: number; tokens_per_step: number; naive: number;
  random: number; ms: number | null; tokens_per_ms: number | null; speedup: number | null; states: TreeState[];
}
/** A numeric curve of the points. */
type TreeCurve = "tokens_per_step" | "naive" | "random" | "ms" | "speedup";

/** The tree of one state: per path its probability ``p``; per node, the root first, where acceptance ends (``stop``)
    and the prompt tokens on it. */
interface TreeState {
  paths: number[][]; p: number[]; stop: number[]; prompts: number[]; prompt_tokens: number; rows: number; f: number;
  pi: number;
}
interface TreeBudget { points: TreePoint[]; best: number | null; chosen: number }

interface TreeLatency {
  setup: { device: string; dtype: string; threads: number; torch: string };
  model: string; context: number; rows: number[]; median: number[]; low: number[]; high: number[]; rounds: number;
  note: string;
}
interface TreeMachine { latency: TreeLatency | null; measuring: { done: number; total: number } | null; failed: string }

interface TreesAnswer extends TreeMachine {
  reason: string; trained: boolean; missing: string; problem: string; measured: boolean; source: string; m: number;
  /** Per distance, per rank: how often a guess holds; ``within``: how often one of the first ``guesses`` does. */
  acceptance: number[][];
  within: { guesses: number; shares: number[] }[];
  budgets: Record<number, TreeBudget>;
  in_use: { rows: number; tokens_per_step: number } | null;
  plotly: string;
}

/** A node of a drawn tree: its path of ranks, its place, its group of shapes. */
interface PlacedNode {
  path: number[]; p: number; stop: number; prompts: number; depth: number; row: number; x: number; y: number;
  children: PlacedNode[]; parent: PlacedNode | null; group: Element | null; words: string;
}
