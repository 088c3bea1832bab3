/** A process that a test stops and continues, as SIGSTOP and SIGCONT do: its clocks go on, its timers and what it receives wait. */

import type { Connector } from "../../src/net/transport.ts";
import type { Driver, DriverEvents } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import type { Clock } from "../../src/util/clock.ts";

export class StoppableProcess {
  readonly clock: Clock;
  #isStopped = false;
  /** What waits: timers run first when the process goes on, as in Node. */
  #timers: (() => void)[] = [];
  #received: (() => void)[] = [];

  /** @param clock of the machine */
  constructor(clock: Clock) {
    this.clock = {
      now: () => clock.now(),
      wall: () => clock.wall(),
      uptime: () => clock.uptime(),
      timer: (run) => clock.timer(() => (this.#isStopped ? this.#timers.push(run) : run())),
    };
  }

  stop(): void {
    this.#isStopped = true;
  }

  continue(): void {
    this.#isStopped = false;
    for (const run of [...this.#timers.splice(0), ...this.#received.splice(0)]) run();
  }

  /** Connections whose data arrive when the process runs. */
  wrapConnector({ url, connect }: Connector): Connector {
    return {
      url,
      connect: (events) =>
        connect({
          ...(events.onConnected && { onConnected: () => this.#receive(() => events.onConnected?.()) }),
          onData: (chunk) => this.#receive(() => events.onData(chunk)),
          onClosed: (error) => this.#receive(() => events.onClosed(error)),
        }),
    };
  }

  /** A driver whose answers and pushes arrive when the process runs. */
  wrapDriver(driver: Driver): Driver {
    const { detach, revoke } = driver;
    const wrapEvents = (events: DriverEvents): DriverEvents => ({
      pushed: (id, answer) => this.#receive(() => events.pushed(id, answer)),
      recheck: (id) => this.#receive(() => events.recheck(id)),
      disconnected: () => this.#receive(() => events.disconnected()),
      reconnected: () => this.#receive(() => events.reconnected()),
      recalled: (id) => this.#receive(() => events.recalled(id)),
      heldTokens: (id) => events.heldTokens(id),
    });
    return delegate(driver, {
      open: (events) => driver.open(wrapEvents(events)),
      claim: (claim) => this.#receiveAnswer(driver.claim(claim)),
      renew: (claims, tokenCounts) => this.#receiveAnswer(driver.renew(claims, tokenCounts)),
      release: (releases) => this.#receiveAnswer(driver.release(releases)),
      ...(detach && { detach: (claims, remainingMs) => this.#receiveAnswer(detach.call(driver, claims, remainingMs)) }),
      ...(revoke && { revoke: (targets) => this.#receiveAnswer(revoke.call(driver, targets)) }),
      list: (query, options) => this.#receiveAnswer(driver.list(query, options)),
    });
  }

  #receive(run: () => void): void {
    if (this.#isStopped) this.#received.push(run);
    else run();
  }

  #receiveAnswer<T>(answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      answer.then(
        (value) => this.#receive(() => resolve(value)),
        (error: unknown) => this.#receive(() => reject(error as Error)),
      );
    });
  }
}
