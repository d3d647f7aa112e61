/* What ``api/runs/difference`` answers (specviz/pages/runs/difference.py). Global. */

/** A step in which one run accepted what the other did not; steps and tokens count from 0. */
interface RunGain {
  step: number; start: number; stop: number; text: string; missed: number; other_step: number; other_steps: number;
  drafted: number; other_accepted: number; offered: string[]; wrote: string; reason: string;
}
interface RunDifference { agreed: number; tokens: [number, number]; gains: [RunGain[], RunGain[]] }
