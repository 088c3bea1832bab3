/** The connection of a chaos driver. A disconnection fails all calls in flight at once. */

/** The error that the caller of a faulty call gets. */
export function chaosError(problem: string): Error {
  return new Error(`chaos: ${problem}`);
}

export interface ChaosConnection {
  readonly isUp: boolean;
  readonly isClosed: boolean;
  /** Counts the disconnections: pushes of an earlier connection are dropped. */
  readonly epoch: number;
  onDisconnect: () => void;
  onReconnect: () => void;
  disconnect(): void;
  reconnect(): void;
  /** Runs the work; rejects if the connection is lost meanwhile, although the work continues. */
  failOnDisconnect<T>(work: () => Promise<T>): Promise<T>;
  /** Runs it after `ms`, unless the connection is closed by then. */
  runAfter(ms: number, run: () => void): void;
  close(): void;
}

export function createChaosConnection(): ChaosConnection {
  const inFlight = new Set<(error: Error) => void>();
  const timers = new Set<NodeJS.Timeout>();
  let isUp = true;
  let isClosed = false;
  let epoch = 0;
  let onDisconnect = (): void => undefined;
  let onReconnect = (): void => undefined;
  const failAll = (error: Error): void => {
    for (const fail of inFlight) fail(error);
    inFlight.clear();
  };

  return {
    get isUp() {
      return isUp;
    },
    get isClosed() {
      return isClosed;
    },
    get epoch() {
      return epoch;
    },
    set onDisconnect(run: () => void) {
      onDisconnect = run;
    },
    set onReconnect(run: () => void) {
      onReconnect = run;
    },
    disconnect() {
      isUp = false;
      epoch++;
      onDisconnect();
      failAll(chaosError("the connection was lost"));
    },
    reconnect() {
      if (isUp) return;
      isUp = true;
      onReconnect();
    },
    failOnDisconnect<T>(work: () => Promise<T>): Promise<T> {
      return new Promise((resolve, reject) => {
        inFlight.add(reject);
        const settle =
          <V>(next: (value: V) => void) =>
          (value: V): void => {
            inFlight.delete(reject);
            next(value);
          };
        work().then(settle(resolve), settle(reject));
      });
    },
    runAfter(ms, run) {
      const timer = setTimeout(() => {
        timers.delete(timer);
        run();
      }, ms);
      timers.add(timer);
    },
    close() {
      isClosed = true;
      onDisconnect = () => undefined;
      onReconnect = () => undefined;
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
      failAll(chaosError("the driver was closed"));
    },
  };
}
