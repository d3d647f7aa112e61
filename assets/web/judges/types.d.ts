/* A run's steps under every verifier: ``api/acceptance/judged/<run>`` (specviz/pages/acceptance/judging.py). Global. */

/** A node that a rule came to: whether it stands, how likely that was, and why. */
type JudgedNode = [node: number, stands: boolean, chance: [number, number], why: string];
/** One rule's verdict on a step; ranges are [low, high]; ``bonus`` is null where the record leaves it open;
 *  ``unreached``: the chance of nodes that the rule did not come to, where there was any. */
interface JudgedStepRule {
  expected: [number, number]; accepted: number; bonus: number | null; open: boolean; other: [number, number] | null;
  differs: number[]; nodes: JudgedNode[]; unreached: Record<number, [number, number]>;
}
/** ``rest``: what is not recorded of p and of q at most. */
interface JudgedStep { step: number; rest: [number, number]; rules: Record<string, JudgedStepRule> }
interface JudgedCard { name: string; title: string; summary: string; source: string; lossless: boolean }
/** Rules with one verdict. */
interface JudgedRow { cards: JudgedCard[]; rule: JudgedStepRule }
/** Where a rule's tokens end: a node, whether it stands, and why. */
interface RuleEnd { node: TreeNode; stands: boolean; why: string }
/** Tokens that can be chosen: of the recorded path (no cards), or of another that rules accept. */
interface JudgedPath { cards: JudgedCard[]; path: TreeNode[] }
interface JudgedRun { state: "ready"; reason: string; rules?: JudgedCard[]; steps?: JudgedStep[]; faults?: string[] }
