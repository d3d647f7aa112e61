/* The types of the vendored libraries, as far as they are used here. */

declare module "preact" {
  /** Something drawn: an element, a component's result, a text. */
  type Drawn = object | string | number | boolean | null | undefined | Drawn[];
  interface VNode { type: unknown; props: object; key: unknown }
  class Component<Props = {}, State = {}> {
    constructor(props?: Props);
    props: Props & { children?: Drawn };
    state: State;
    base?: Element | Text;
    setState(state: Partial<State>): void;
    render(props: Props, state: State): Drawn;
    componentDidMount?(): void;
    componentDidUpdate?(before: Props): void;
    componentWillUnmount?(): void;
    shouldComponentUpdate?(props: Props): boolean;
  }
  interface Context<Value> { Provider: (props: { value: Value; children?: Drawn }) => Drawn }
  function h(type: unknown, props: object | null, ...children: Drawn[]): VNode;
  function render(drawn: Drawn, parent: Element | DocumentFragment): void;
  function createContext<Value>(value: Value): Context<Value>;
  function createRef<Value>(): { current: Value | null };
  const Fragment: (props: { children?: Drawn }) => Drawn;
}

declare module "preact/hooks" {
  import type { Context } from "preact";
  type Off = void | (() => void);
  function useState<Value>(value: Value | (() => Value)): [Value, (next: Value | ((old: Value) => Value)) => void];
  function useRef<Value>(value: Value): { current: Value };
  function useEffect(effect: () => Off, inputs?: unknown[]): void;
  function useLayoutEffect(effect: () => Off, inputs?: unknown[]): void;
  function useMemo<Value>(make: () => Value, inputs: unknown[]): Value;
  function useCallback<Fn extends Function>(fn: Fn, inputs: unknown[]): Fn;
  function useContext<Value>(context: Context<Value>): Value;
  function useId(): string;
}

declare module "htm" {
  const htm: { bind(h: unknown): (strings: TemplateStringsArray, ...values: unknown[]) => import("preact").VNode };
  export default htm;
}

declare module "@preact/signals" {
  interface ReadonlySignal<Value> { readonly value: Value; peek(): Value; subscribe(fn: (value: Value) => void): () => void }
  interface Signal<Value> extends ReadonlySignal<Value> { value: Value }
  function signal<Value>(value: Value): Signal<Value>;
  function computed<Value>(fn: () => Value): ReadonlySignal<Value>;
  function effect(fn: () => void | (() => void)): () => void;
  function batch<Value>(fn: () => Value): Value;
  function untracked<Value>(fn: () => Value): Value;
  function useSignal<Value>(value: Value): Signal<Value>;
  function useComputed<Value>(fn: () => Value): ReadonlySignal<Value>;
  function useSignalEffect(fn: () => void | (() => void)): void;
}

declare module "diff" {
  interface Part<Value> { value: Value; count: number; added: boolean; removed: boolean }
  export default class Diff {
    diff<Value>(old: Value, now: Value, options?: { maxEditLength?: number }): Part<Value>[] | undefined;
  }
}
