/* A lesson as the server fills it: specviz/pages/lessons/filling.py. Global. */

/** A piece of a paragraph. */
type WordRun = [kind: "text" | "em" | "code", words: string];
type Paragraph = WordRun[];

/** What a stop highlights. */
type LessonPlace =
  | { kind: "panel"; name: string }
  | { kind: "tokens"; at: number[] }
  | { kind: "node"; node: number }
  | { kind: "candidate"; row: number }
  | { kind: "metric"; key: string };

/** A question before a step; ``answer``: the right option; ``scores``: the candidates' scores stay in sight. */
interface LessonQuestion {
  kind: QuestionKind; text: Paragraph[]; options: LessonOption[]; answer: number; scores: boolean; reveal: Paragraph[];
}
type QuestionKind = "accepted" | "branch" | "token" | "candidate" | "best" | "value" | "yes";
/** ``position``: where it stands in the text. */
interface LessonOption { runs: Paragraph; position?: number; pool?: number }

interface LessonStop {
  title: string; run: string; step: number; show: LessonPlace[]; text: Paragraph[]; ask: LessonQuestion | null;
}

/** ``api/lessons/<id>``. */
interface LessonText {
  id: string; own: boolean; title: string; about: string; minutes: number; learn: string[]; stops: LessonStop[];
}

/** ``api/lessons``: lessons as cards; one that cannot be shown tells its faults. */
interface LessonList { lessons: (LessonCard | FaultyLesson)[] }
interface LessonCard {
  id: string; own: boolean; title: string; about: string; minutes: number; learn: string[]; stops: number; asked: number;
  faults?: undefined;
}
interface FaultyLesson { id: string; own: boolean; faults: string[]; minutes?: undefined }

/** Where a learner stands: the stop, from 0, and the chosen option by stop. */
interface LessonProgress { at: number; answers: Record<string, number> }

interface LessonOptions extends Partial<LessonProgress> {
  load: (run: string) => Promise<Trace>;
  /** Whether it opens in presenter mode. */
  present?: boolean;
  moved?: (progress: LessonProgress) => void;
  /** The address of a stop. */
  link?: (at: number) => string;
  /** Buttons: back to the lessons, this run on Inspect, the next lesson. */
  leave?: () => void;
  open?: (run: string, step: number) => void;
  next?: { title: string; go: () => void } | null;
}

/** What lessons stand in: the app's page, or one of a static site. */
interface LessonHost {
  lessons: () => Promise<LessonList>;
  lesson: (id: string) => Promise<LessonText>;
  run: (name: string) => Promise<Trace>;
  /** Opens a run at a step on Inspect. */
  inspect: (run: string, step: number) => void;
  /** Changes parameters of the address; null removes one. */
  moved: (changes: Record<string, string | null>) => void;
  /** Parameters of every lesson's address. */
  address: Record<string, string>;
  /** What is said below the cards. */
  note: () => HTMLElement;
}
