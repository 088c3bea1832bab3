/** One client: opened by its first request or by connect(), closed once. */

import { ClosedError, DriverError, isFatalError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { withTimeout } from "../util/timeout.ts";
import { Acquirer } from "./acquirer.ts";
import { wrapDriverError } from "./driver-error.ts";
import { Engine } from "./engine.ts";
import { Events } from "./events.ts";
import { LocalQueue } from "./local-queue.ts";
import { LocalQueues } from "./local-queues.ts";
import type { ClientSettings } from "./options.ts";
import { FlowHolds } from "./reentrancy.ts";
import { createTokenFloors } from "./token-floors.ts";

/** How long close() waits for the store to answer releases. */
const CLOSE_TIMEOUT_MS = 5_000;

export class Client {
  readonly settings: ClientSettings;
  readonly driver: Driver;
  readonly events: Events = new Events();
  readonly flowHolds: FlowHolds = new FlowHolds();
  readonly #random: () => number;
  #acquirer: Acquirer | null = null;
  #opening: Promise<Acquirer> | null = null;
  #closing: Promise<void> | null = null;

  constructor(driver: Driver, settings: ClientSettings, random: () => number) {
    this.driver = driver;
    this.settings = settings;
    this.#random = random;
  }

  getAcquirer(): Acquirer | Promise<Acquirer> {
    if (this.#closing !== null) return Promise.reject(new ClosedError("this client was closed"));
    return this.#acquirer ?? this.open();
  }

  open(): Promise<Acquirer> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The acquirer, or null if the client has not been opened. Does not open it. */
  get openedAcquirer(): Acquirer | null {
    return this.#acquirer;
  }

  /**
   * Releases all held locks; waiting requests keep waiting. Settles when the store has answered the releases or has
   * certainly dropped the claims.
   */
  async releaseAll(): Promise<void> {
    const engine = this.#acquirer?.queues.engine;
    if (engine === undefined) return;
    for (const { listener } of engine.listClaims()) if (listener instanceof LocalQueue) listener.forceRelease();
    await engine.whenIdle();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #open(): Promise<Acquirer> {
    const { driver, settings, events } = this;
    const { clock } = settings;
    const engine = new Engine(driver, clock, this.#random, events);
    try {
      await driver.open((id, answer) => engine.notify(id, answer));
    } catch (error) {
      this.#opening = null; // so that a later request tries again
      throw isFatalError(error) ? error : wrapDriverError(error, `could not open ${driver.name}`, []);
    }
    const tokenFloors = createTokenFloors(driver.traits.durability !== "process");
    this.#acquirer = new Acquirer(new LocalQueues(engine, settings, tokenFloors, events), this.flowHolds);
    return this.#acquirer;
  }

  async #close(): Promise<void> {
    if (this.#opening === null) return;
    const acquirer = await this.#opening.catch((error: unknown) => {
      if (error instanceof DriverError || isFatalError(error)) return null; // the caller of open() has received it
      throw error;
    });
    if (acquirer === null) return;
    const { engine } = acquirer.queues;
    const closedError = new ClosedError("this client was closed");
    for (const { listener } of engine.listClaims()) if (listener instanceof LocalQueue) listener.rejectAll(closedError);
    await withTimeout(engine.scheduler, CLOSE_TIMEOUT_MS, this.releaseAll(), () => undefined);
    for (const activeClaim of engine.listClaims()) engine.release(activeClaim);
    await withTimeout(engine.scheduler, CLOSE_TIMEOUT_MS, engine.whenIdle(), () => undefined);
    engine.stop();
    this.flowHolds.close();
    await this.driver.close();
  }
}
