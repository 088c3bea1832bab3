/** Frames that wait to be written, so that those of one turn of the event loop share a line. */

/** So many do not wait for the end of their turn: the server works on them while we make the others. */
const ENOUGH = 16;

export class Outbox {
  readonly #flush: () => void;
  #frames: string[] = [];
  #flushing = false;

  /** @param flush takes what there is and writes it */
  constructor(flush: () => void) {
    this.#flush = flush;
  }

  push(frame: string): void {
    this.#frames.push(frame);
  }

  /** Has all written that this turn wants to say: first come its promises, then the flush. */
  flushSoon(): void {
    if (this.#frames.length >= ENOUGH) return this.#flush();
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#flushing = false;
        this.#flush();
      }),
    );
  }

  take(): readonly string[] {
    const frames = this.#frames;
    this.#frames = [];
    return frames;
  }
}
