/** The faults that a test has ordered for the next calls and pushes of a chaos driver. */

/** A verb whose calls can get faults; open() and close() never do. */
export type Verb = "claim" | "renew" | "release" | "detach" | "revoke" | "list";

/** A call that a test has paused. */
export interface PausedCall {
  /** Settles when a call is paused. */
  readonly reached: Promise<void>;
  /** Continues the call. */
  resume(): void;
}

/** The faults that a test can order; counts are 1 by default. */
export interface ChaosCommands {
  /** The next calls of this verb never reach the store. */
  loseNextCall(verb: Verb, count?: number): void;
  /** The next calls of this verb reach the store, but their callers see errors. */
  loseNextReply(verb: Verb, count?: number): void;
  /** The next pushes are lost. */
  loseNextPush(count?: number): void;
  /** Pauses the next call of this verb before it reaches the store, or before its answer returns. Default: before. */
  pauseNext(verb: Verb, where?: "before" | "after"): PausedCall;
  /** Counts the calls of this verb so far, lost ones included. */
  countCalls(verb: Verb): number;
}

export interface Gate extends PausedCall {
  arrive(): Promise<void>;
}

export interface FaultQueue {
  readonly commands: ChaosCommands;
  recordCall(verb: Verb): void;
  takeLoss(verb: Verb): "call" | "reply" | null;
  takePushLoss(): boolean;
  takeGate(verb: Verb, where: "before" | "after"): Gate | undefined;
}

export function createFaultQueue(): FaultQueue {
  const calls = new Map<Verb, number>();
  const losses: { readonly verb: Verb; readonly what: "call" | "reply" }[] = [];
  const gates: { readonly verb: Verb; readonly where: "before" | "after"; readonly gate: Gate }[] = [];
  let lostPushes = 0;
  const addLosses = (verb: Verb, what: "call" | "reply", count: number): void => {
    for (let index = 0; index < count; index++) losses.push({ verb, what });
  };

  return {
    commands: {
      loseNextCall: (verb, count = 1) => addLosses(verb, "call", count),
      loseNextReply: (verb, count = 1) => addLosses(verb, "reply", count),
      loseNextPush(count = 1) {
        lostPushes += count;
      },
      pauseNext(verb, where = "before") {
        const gate = createGate();
        gates.push({ verb, where, gate });
        return gate;
      },
      countCalls: (verb) => calls.get(verb) ?? 0,
    },
    recordCall: (verb) => void calls.set(verb, (calls.get(verb) ?? 0) + 1),
    takeLoss(verb) {
      const index = losses.findIndex((loss) => loss.verb === verb);
      return index === -1 ? null : (losses.splice(index, 1)[0]?.what ?? null);
    },
    takePushLoss: () => lostPushes > 0 && lostPushes-- > 0,
    takeGate(verb, where) {
      const index = gates.findIndex((order) => order.verb === verb && order.where === where);
      return index === -1 ? undefined : gates.splice(index, 1)[0]?.gate;
    },
  };
}

function createGate(): Gate {
  let reach = (): void => undefined;
  let pass = (): void => undefined;
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  const passed = new Promise<void>((resolve) => {
    pass = resolve;
  });
  return {
    reached,
    resume: () => pass(),
    arrive() {
      reach();
      return passed;
    },
  };
}
