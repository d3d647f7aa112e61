/* What ``api/acceptance`` answers (specviz/pages/acceptance/service.py), and what the page knows. Global. */

/** One way to say how much is accepted: ``Definition``. */
interface AcceptanceDefinition {
  key: string; label: string; formula: string; unit: string; used: string; help: string; worked: string;
}
interface AcceptanceAnswer { definitions: AcceptanceDefinition[]; plotly: string; fewest: number; rows: string; model: string }

/** A file as it is sent: ``bodies.SentFile``. */
interface SentFile { name: string; text: string }

/** A depth of the draft; rates are null where nothing was decided there. */
interface AcceptanceDepth {
  depth: number; decided: number; stood: number; drafts: number; conditional: number | null;
  unconditional: number | null;
}
interface AcceptanceGroup { key: string | number; stood: number; decided: number; rate: number }
type AcceptanceGroups = "context" | "class" | "segment" | "origin";

/** One confidence and what came of it; ``ece`` and ``brier`` are null of what is no probability. */
interface Calibration {
  key: string; table: string; label: string; help: string; low: number; high: number; outcome: string;
  probability: boolean; count: number; rate: number; ece: number | null; brier: number | null; auroc: number | null;
  bins: { low: number; high: number; count: number; told: number; right: number }[];
}

/** A method's runs, pooled; ``worked``: each formula with its numbers. */
interface AcceptanceSet {
  method: string; title: string; lossless: boolean; runs: number; draft_cost: number | null;
  /** Runs that c is the mean of, and how many of them divide by a one-row time of another run. */
  costs: number; costs_apart: number;
  parts: Record<string, number>; pooled: Record<string, number | null>; means: Record<string, number | null>;
  worked: Record<string, string>; depths: AcceptanceDepth[]; lengths: [number, number][];
  groups: Record<AcceptanceGroups, AcceptanceGroup[]>; calibration: Calibration[];
}

interface Forecast { gamma: number; tokens: number; cost: number; speedup: number }
interface Forecasts { forecasts: Forecast[]; best: number; measured_to: number | null }

/** One of two outputs, per token: how far below the best logit, and its probability. */
interface OutputReading { tokens: number[]; below: number[]; probs: number[] }
interface OutputsAnswer {
  plain: OutputReading; drafted: OutputReading; at: number | null; verdict: string; tolerance: number;
  gap: number | null; plain_prob: number | null; drafted_prob: number | null; model: string;
  texts: { plain: string[]; drafted: string[] }; calls: string;
}

/** A verifier and its sums over the chosen runs' drafts: ``Total`` of study/judge/judge.py; ranges are [low, high]. */
interface JudgedRule {
  name: string; title: string; summary: string; source: string; lossless: boolean;
  steps: number; drafted: number; accepted: number; differs: number; open: number;
  tokens_per_step: [number, number] | null; other_share: [number, number] | null;
}
interface JudgesAnswer { state: "ready"; rules: JudgedRule[]; runs: number; rest: number; faults: string[] }
/** Of an experiment's runs: the lines that hold drafts, and the one that was judged. */
interface LabJudgesAnswer extends JudgesAnswer { lines: string[]; line: string }
/** Runs are judged in the background: so many of their steps are done. */
interface StillJudging { state: "judging"; done: number; of: number }
