/** Reads the list of a store again and again, shows it, and follows the keys. */

import type { Snapshot } from "../../../listing/key-rows.ts";
import type { CommandError } from "../../errors.ts";
import { isTransient, isUnresponsive } from "../../errors.ts";
import { InterruptedError } from "../../signals.ts";
import { FullScreen } from "./full-screen.ts";
import { computeInterval, computeRetryPause } from "./interval.ts";
import type { Key } from "./keys.ts";
import type { StoreState } from "./screen.ts";
import { extentOf, renderScreen, selectRows } from "./screen.ts";
import type { ViewState } from "./view-state.ts";
import { applyKey, clampOffset, INITIAL_VIEW } from "./view-state.ts";

/** Reads the list of an open store. @throws CommandError */
export type SnapshotReader = () => Promise<Snapshot>;

/** What is shown, and how. */
export interface LiveViewOptions {
  readonly storeName: string;
  readonly prefix: string;
  readonly maxClaims: number;
  readonly intervalMs: number;
  readonly hasColors: boolean;
  /** Opens the store. @throws CommandError */
  open(): Promise<SnapshotReader>;
}

/** After a list that took longer than the interval. */
const MIN_PAUSE_MS = 100;

/** The age of the rows is shown in seconds. */
const CLOCK_MS = 1_000;

/** The screen from the first list to the key that ends it. */
export class LiveView {
  readonly #options: LiveViewOptions;
  readonly #screen = new FullScreen({
    onKey: (key) => this.#onKey(key),
    onRedraw: () => this.#draw(),
    onClosed: () => this.#end.reject(new InterruptedError("SIGHUP")),
  });
  readonly #end = createEnd();
  #view: ViewState = INITIAL_VIEW;
  #read: SnapshotReader | null = null;
  #snapshot: Snapshot | null = null;
  #readAt = performance.now();
  #failure: string | null = null;
  #intervalMs: number;
  /** What the last list took. */
  #tookMs: number | null = null;
  #refreshTimer: NodeJS.Timeout | null = null;
  #isReading = false;

  constructor(options: LiveViewOptions) {
    this.#options = options;
    this.#intervalMs = options.intervalMs;
  }

  /**
   * Shows the store until `q` is pressed. Only the first list ends it if it fails: later the store may come back.
   * @throws CommandError if the first list fails; InterruptedError
   */
  async run(): Promise<void> {
    this.#screen.open();
    const clock = setInterval(() => this.#draw(), CLOCK_MS);
    void this.#refresh();
    try {
      await this.#end.reached;
    } finally {
      clearInterval(clock);
      this.close();
    }
  }

  /** Restores the terminal. */
  close(): void {
    if (this.#refreshTimer !== null) clearTimeout(this.#refreshTimer);
    this.#screen.close();
  }

  async #refresh(): Promise<void> {
    this.#isReading = true;
    const pauseMs = await this.#readSnapshot();
    this.#isReading = false;
    this.#refreshTimer = setTimeout(() => this.#onTimer(), pauseMs);
    this.#draw();
  }

  /** Reads the list, and computes the pause until the next one. */
  async #readSnapshot(): Promise<number> {
    const { intervalMs, open } = this.#options;
    let startedAt = performance.now();
    try {
      this.#read ??= await open();
      startedAt = performance.now();
      const snapshot = await this.#read();
      const tookMs = performance.now() - startedAt;
      // while it is paused the rows stay as they are
      if (!this.#view.isPaused || this.#snapshot === null) {
        this.#snapshot = snapshot;
        this.#readAt = startedAt;
      }
      this.#failure = null;
      this.#intervalMs = computeInterval(intervalMs, tookMs, this.#tookMs);
      this.#tookMs = tookMs;
      return Math.max(this.#intervalMs - tookMs, MIN_PAUSE_MS);
    } catch (error) {
      const failure = error as CommandError;
      if (this.#snapshot === null) this.#end.reject(failure);
      this.#failure = failure.message;
      const isAbsent = isTransient(failure) && !isUnresponsive(failure);
      return computeRetryPause(intervalMs, performance.now() - startedAt, isAbsent);
    }
  }

  #onTimer(): void {
    this.#refreshTimer = null;
    if (!this.#view.isPaused) void this.#refresh();
  }

  #onKey(key: Key): void {
    const isCommand = !this.#view.isEditingFilter && !this.#view.isHelpShown;
    if (key.name === "interrupt") return this.#end.reject(new InterruptedError("SIGINT"));
    if (isCommand && key.text === "q") return this.#end.resolve();
    if (key.name === "suspend") return this.#screen.suspend();
    if (key.name === "redraw") return this.#screen.redraw();
    const rows = selectRows(this.#storeState(), this.#view);
    this.#view = applyKey(this.#view, key, extentOf(rows.length, this.#screen.size()));
    if (!this.#view.isPaused && this.#refreshTimer === null && !this.#isReading) void this.#refresh();
    this.#draw();
  }

  #draw(): void {
    const state = this.#storeState();
    const size = this.#screen.size();
    // a larger screen, or fewer rows, may leave none below the offset
    this.#view = clampOffset(this.#view, extentOf(selectRows(state, this.#view).length, size));
    this.#screen.draw(renderScreen(state, this.#view, size, this.#options.hasColors));
  }

  #storeState(): StoreState {
    const { storeName: name, prefix, maxClaims } = this.#options;
    return {
      name,
      prefix,
      maxClaims,
      snapshot: this.#snapshot,
      ageMs: performance.now() - this.#readAt,
      failure: this.#failure,
      intervalMs: this.#intervalMs,
    };
  }
}

/** The end of the command: by a key, or by an error. */
interface End {
  readonly reached: Promise<void>;
  resolve(): void;
  reject(error: Error): void;
}

function createEnd(): End {
  let [resolve, reject]: [() => void, (error: Error) => void] = [() => undefined, () => undefined];
  const reached = new Promise<void>((onResolved, onRejected) => {
    [resolve, reject] = [onResolved, onRejected];
  });
  reached.catch(() => undefined);
  return { reached, resolve: () => resolve(), reject: (error) => reject(error) };
}
