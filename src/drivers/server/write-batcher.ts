/** Frames that wait to be written, so that those of one turn of the event loop share a line. */

/** So many do not wait for the end of their turn: the server works on them while we make the others. */
const FLUSH_THRESHOLD = 16;

export class WriteBatcher {
  readonly #flush: () => void;
  #frames: string[] = [];
  #isFlushScheduled = false;

  /** @param flush takes what there is and writes it */
  constructor(flush: () => void) {
    this.#flush = flush;
  }

  add(frame: string): void {
    this.#frames.push(frame);
  }

  /** Has all written that this turn wants to say: first come its promises, then the flush. */
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
