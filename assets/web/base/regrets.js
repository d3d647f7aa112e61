/* Ranking regret, step by step. */

/**
 * Steps whose chosen candidate offered tokens and whose outcome is known, as decoders.trace.metrics.regrets gives them.
 *
 * @type {(model: Pick<Model, "trace">) => Regret[]}
 */
export function regrets({ trace }) {
  const { step, would_accept: would, chosen, length } = trace.candidates;
  const best = new Map();
  for (let row = 0; row < step.length; row++) best.set(step[row], Math.max(best.get(step[row]) ?? -1, would[row]));
  const lost = [];
  for (let row = 0; row < step.length; row++) {
    if (!chosen[row] || would[row] < 0 || length[row] < 1) continue;
    const most = best.get(step[row]);
    lost.push({ step: step[row], chosen: would[row], best: most, tokens: most - would[row] });
  }
  return lost;
}
