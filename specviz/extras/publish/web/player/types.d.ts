/** A run as the player gets it: specviz/views/player.py. Global. */
interface PlayerRun {
  run: Pick<Run, "title" | "complete" | "stop" | "opens" | "unknown" | "prompt_length" | "method" | "model">;
  pieces: [hex: string, special: boolean][];
  tokens: number[];
  kinds: TokenRow["kind"][];
  steps: { drafted: number[]; accepted: number[]; emitted: number[]; bonus: number[] };
  nodes: { token: number[]; up: number[]; status: NodeStatus[]; prob: (number | null)[] };
}
