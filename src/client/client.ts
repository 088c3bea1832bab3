/** One client's life: opened at its first use or by connect(), closed once. */

import { ClosedError, DriverError, isFatal } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { Acquirer } from "./acquire.ts";
import { Context } from "./context.ts";
import { Engine } from "./engine.ts";
import { Events } from "./events.ts";
import { KeyLane } from "./key-lane.ts";
import { LaneHost } from "./lane-host.ts";
import type { Settings } from "./options.ts";
import { within } from "./within.ts";
import { makeWitness } from "./witness.ts";
import { wrapped } from "./wrap-error.ts";

/** How long close() waits for the store to answer releases. */
const CLOSE_MS = 5_000;

export class Client {
  readonly settings: Settings;
  readonly driver: Driver;
  readonly events: Events = new Events();
  readonly context: Context = new Context();
  readonly #random: () => number;
  #acquirer: Acquirer | null = null;
  #opening: Promise<Acquirer> | null = null;
  #closing: Promise<void> | null = null;

  constructor(driver: Driver, settings: Settings, random: () => number) {
    this.driver = driver;
    this.settings = settings;
    this.#random = random;
  }

  acquirer(): Acquirer | Promise<Acquirer> {
    if (this.#closing !== null) return Promise.reject(new ClosedError("this client was closed"));
    return this.#acquirer ?? this.open();
  }

  open(): Promise<Acquirer> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The acquirer if there is one: tools ask it, but do not open a client for it. */
  get opened(): Acquirer | null {
    return this.#acquirer;
  }

  /** Gives back what is held; waiting requests go on waiting. Settles when the store has answered or forgotten. */
  async releaseAll(): Promise<void> {
    const engine = this.#acquirer?.host.engine;
    if (engine === undefined) return;
    for (const { owner } of engine.all()) if (owner instanceof KeyLane) owner.takeBack();
    await engine.idle();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #open(): Promise<Acquirer> {
    const { driver, settings, events } = this;
    const { clock } = settings;
    const engine = new Engine({ driver, clock, random: this.#random, events });
    try {
      await driver.open((id, answer) => engine.notify(id, answer));
    } catch (error) {
      this.#opening = null; // a later request may find the store up
      throw isFatal(error) ? error : wrapped(error, `could not open ${driver.name}`, []);
    }
    const witness = makeWitness(driver.traits.survives !== "process");
    this.#acquirer = new Acquirer(new LaneHost(engine, settings, witness, events), this.context);
    return this.#acquirer;
  }

  async #close(): Promise<void> {
    if (this.#opening === null) return;
    const acquirer = await this.#opening.catch((error: unknown) => {
      if (error instanceof DriverError || isFatal(error)) return null; // whoever asked was told
      throw error;
    });
    if (acquirer === null) return;
    const { engine } = acquirer.host;
    const closed = new ClosedError("this client was closed");
    for (const { owner } of engine.all()) if (owner instanceof KeyLane) owner.refuseAll(closed);
    await within(engine, CLOSE_MS, this.releaseAll(), () => undefined);
    for (const tracked of engine.all()) engine.leave(tracked);
    await within(engine, CLOSE_MS, engine.idle(), () => undefined);
    engine.stop();
    this.context.close();
    await this.driver.close();
  }
}
