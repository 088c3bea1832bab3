/** Collects frames, so that those of one turn of the event loop share a line. */

/** This many frames are written before the turn ends: the server works on them while the client encodes the others. */
const FLUSH_THRESHOLD = 16;

export class WriteBatcher {
  readonly #flush: () => void;
  #frames: string[] = [];
  #isFlushScheduled = false;

  /** @param flush drains the frames and writes them */
  constructor(flush: () => void) {
    this.#flush = flush;
  }

  add(frame: string): void {
    this.#frames.push(frame);
  }

  /** Flushes at the end of this turn, after its promises: their continuations may add frames. */
  scheduleFlush(): void {
    if (this.#frames.length >= FLUSH_THRESHOLD) return this.#flush();
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#isFlushScheduled = false;
        this.#flush();
      }),
    );
  }

  drain(): readonly string[] {
    const frames = this.#frames;
    this.#frames = [];
    return frames;
  }
}
