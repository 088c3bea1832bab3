/** The connection of a chaos driver: up or cut; whoever waits on it hears of a cut at once. */

/** What the caller of a disturbed verb sees. */
export function broken(what: string): Error {
  return new Error(`chaos: ${what}`);
}

export interface ChaosLine {
  readonly isUp: boolean;
  readonly isClosed: boolean;
  /** Counts the connections made: what came over an earlier one is void. */
  readonly life: number;
  onHeal: () => void;
  cut(): void;
  heal(): void;
  /** Work whose outcome is an error if the connection is cut meanwhile; the work itself goes on. */
  untilCut<T>(work: () => Promise<T>): Promise<T>;
  /** After `ms`, unless the line is closed by then. */
  soon(ms: number, run: () => void): void;
  close(): void;
}

export function chaosLine(): ChaosLine {
  const underWay = new Set<(error: Error) => void>();
  const timers = new Set<NodeJS.Timeout>();
  let isUp = true;
  let isClosed = false;
  let life = 0;
  let onHeal = (): void => undefined;
  const failAll = (error: Error): void => {
    for (const fail of underWay) fail(error);
    underWay.clear();
  };

  return {
    get isUp() {
      return isUp;
    },
    get isClosed() {
      return isClosed;
    },
    get life() {
      return life;
    },
    set onHeal(run: () => void) {
      onHeal = run;
    },
    cut() {
      isUp = false;
      life++;
      failAll(broken("the connection was cut"));
    },
    heal() {
      if (isUp) return;
      isUp = true;
      onHeal();
    },
    untilCut<T>(work: () => Promise<T>): Promise<T> {
      return new Promise((resolve, reject) => {
        underWay.add(reject);
        const settle =
          <V>(then: (value: V) => void) =>
          (value: V): void => {
            underWay.delete(reject);
            then(value);
          };
        work().then(settle(resolve), settle(reject));
      });
    },
    soon(ms, run) {
      const timer = setTimeout(() => {
        timers.delete(timer);
        run();
      }, ms);
      timers.add(timer);
    },
    close() {
      isClosed = true;
      onHeal = () => undefined;
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
      failAll(broken("the driver was closed"));
    },
  };
}
