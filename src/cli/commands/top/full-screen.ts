/**
 * The terminal as a screen: raw mode, the alternate screen, keys, and lines that are written only where they change.
 * Every way out of the process restores the terminal: a return, an error, a signal, and a stop by Ctrl-Z.
 */

import type { ReadStream, WriteStream } from "node:tty";
import type { Key } from "./keys.ts";
import { KeyDecoder } from "./keys.ts";
import type { Size } from "./screen.ts";

/** The alternate screen, without cursor; a line that is too long does not go on in the next one. */
const ENTER = "\u001b[?1049h\u001b[?25l\u001b[?7l";
const LEAVE = "\u001b[0m\u001b[?7h\u001b[?25h\u001b[?1049l";
const ERASE_TO_END_OF_LINE = "\u001b[K";

function moveToLine(index: number): string {
  return `\u001b[${index + 1};1H`;
}

/** After this time an escape character was the Escape key, and not the beginning of a sequence. */
const ESCAPE_KEY_MS = 50;
/** A process that has asked to be stopped and still runs after this time belongs to no shell that could continue it. */
const STOP_MS = 100;

/** What the screen reports. */
export interface ScreenEvents {
  onKey(key: Key): void;
  /** All lines are to be drawn: at first, in a new size, and after a stop. */
  onRedraw(): void;
  /** The terminal is gone. */
  onClosed(): void;
}

/** True if standard input and output are a terminal that can show a screen. */
export function hasFullScreen(env: NodeJS.ProcessEnv = process.env): boolean {
  return process.stdin.isTTY === true && process.stdout.isTTY === true && env.TERM !== "dumb";
}

/** The screen of this process, from open() to close(). */
export class FullScreen {
  readonly #input: ReadStream = process.stdin;
  readonly #output: WriteStream = process.stdout;
  readonly #events: ScreenEvents;
  readonly #decoder = new KeyDecoder();
  #escapeTimer: NodeJS.Timeout | null = null;
  #isActive = false;
  #shownLines: readonly string[] = [];

  constructor(events: ScreenEvents) {
    this.#events = events;
  }

  open(): void {
    // before the listener that prints the error: it must not print to the alternate screen
    process.prependListener("uncaughtException", this.#leave);
    process.on("exit", this.#leave);
    process.on("SIGTSTP", this.#onStopSignal);
    process.on("SIGCONT", this.#onContinued);
    this.#output.on("resize", this.#redraw);
    this.#output.on("error", this.#events.onClosed);
    this.#input.on("error", this.#events.onClosed);
    this.#input.on("end", this.#events.onClosed);
    this.#input.setEncoding("utf8").on("data", this.#onInput);
    this.#enter();
  }

  /** Restores the terminal. */
  close(): void {
    this.#leave();
    if (this.#escapeTimer !== null) clearTimeout(this.#escapeTimer);
    process.removeListener("SIGTSTP", this.#onStopSignal);
    process.removeListener("SIGCONT", this.#onContinued);
    this.#output.removeListener("resize", this.#redraw);
    this.#input.removeListener("data", this.#onInput);
    this.#input.pause();
  }

  /** Its size at this moment: it may have changed while the process was stopped. */
  size(): Size {
    const [columns, lines] = this.#output.getWindowSize();
    return { columns: columns || 80, lines: lines || 24 };
  }

  /** Writes the lines that have changed, at once. */
  draw(lines: readonly string[]): void {
    if (!this.#isActive) return;
    const changes = lines.flatMap((line, index) =>
      line === this.#shownLines[index] ? [] : [`${moveToLine(index)}${line}${ERASE_TO_END_OF_LINE}`],
    );
    this.#shownLines = lines;
    // in a tmux window that is made smaller, lines below the cursor would be left on the main screen
    if (changes.length > 0) this.#output.write(changes.join("") + moveToLine(lines.length - 1));
  }

  /** Draws all lines again, over what other programs may have written. */
  redraw(): void {
    this.#redraw();
  }

  /** Ctrl-Z: restores the terminal, and stops this process and those that it shares the terminal with. */
  suspend(): void {
    this.#stop(0);
  }

  readonly #onInput = (text: string): void => {
    if (this.#escapeTimer !== null) clearTimeout(this.#escapeTimer);
    for (const key of this.#decoder.push(text)) this.#events.onKey(key);
    if (!this.#decoder.isUnfinished) return;
    this.#escapeTimer = setTimeout(() => {
      for (const key of this.#decoder.flush()) this.#events.onKey(key);
    }, ESCAPE_KEY_MS);
  };

  readonly #onStopSignal = (): void => this.#stop(process.pid);

  #stop(pid: number): void {
    this.#leave();
    // without a listener the signal stops the process
    process.removeListener("SIGTSTP", this.#onStopSignal);
    process.kill(pid, "SIGTSTP");
    setTimeout(() => {
      if (!this.#isActive) this.#onContinued();
    }, STOP_MS);
  }

  readonly #onContinued = (): void => {
    // the shell may have changed the mode of the terminal
    this.#leave();
    process.removeListener("SIGTSTP", this.#onStopSignal);
    process.on("SIGTSTP", this.#onStopSignal);
    this.#enter();
  };

  #enter(): void {
    this.#input.setRawMode(true);
    this.#output.write(ENTER);
    this.#isActive = true;
    this.#redraw();
  }

  readonly #leave = (): void => {
    if (!this.#isActive) return;
    this.#isActive = false;
    this.#output.write(LEAVE);
    this.#input.setRawMode(false);
  };

  readonly #redraw = (): void => {
    this.#shownLines = [];
    this.#events.onRedraw();
  };
}
