/* The answer of ``api/find`` (../../page.py). Global. */

/** A place of a run that holds a word; ``step`` from 0, -1 in the prompt. */
interface FoundPlace {
  part: "output" | "rejected" | "prompt"; step: number; first: number; last: number;
  text: [string, string, string];
}
/** ``words``: those of the question that stand in the run. */
interface FoundRun { words: string[]; count: number; places: FoundPlace[] }
interface FindAnswer { runs: Record<string, FoundRun>; pending: number }
