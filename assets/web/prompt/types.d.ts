/* The prompt's form: what it holds, and what the server offers for it. Global. */

interface ChatMessage { role: "system" | "user" | "assistant"; content: string }

/** A prompt as it is typed; the fields of the other modes are kept, and not sent. */
interface TypedPrompt {
  mode: "segments" | "chat" | "text";
  instruction: string; context: string; question: string; text: string;
  messages: ChatMessage[];
  reference: string;
  /** The form of the answer; without it any. */
  grammar?: AnswerForm | null;
}

/** ``filter``: drafted tokens that it forbids are left out before they are verified. */
interface AnswerForm { kind: "json schema" | "regex"; text: string; filter: boolean }

/** What filled the form, and ``whose`` the reference is that goes with its prompt; ``run``: it is that run's prompt. */
interface PromptSource { run: string; whose: "the run's" | "the example's" | ""; prompt: TypedPrompt; note: string }

/** What the form holds; ``own``: the reference that a person typed, null where none was. */
interface PromptDraft { prompt: TypedPrompt; source: PromptSource; own: string | null }

/** A prompt of one's own that the browser keeps. */
interface KeptPrompt { prompt: TypedPrompt; name: string }

/** ``api/inspect/form``. */
interface PromptOffer {
  examples: { id: string; label: string; note: string; prompt: TypedPrompt }[];
  templates: { name: string; title: string; text: string }[];
}

/** A button of an annex that sends the prompt elsewhere; ``prompt`` gives what the form holds when it is sent. */
interface PromptSender { label: string; open: (opener: HTMLElement, prompt: () => object) => void }

/** Where the form is wrong, and why. */
interface FormFault { place: string; text: string }
