/** The messages of a text/event-stream, from its bytes. */

/** One message of a stream. */
export interface StreamMessage {
  /** The newest id of the stream, with which it can be continued; "": there was none. */
  readonly id: string;
  /** "message" if it has no name. */
  readonly event: string;
  readonly data: string;
}

const LINE_END = /\r\n|\r|\n/;

/** Parses one stream. Chunks may be split anywhere. */
export class EventStreamParser {
  readonly #decoder = new TextDecoder();
  #line = "";
  /** A newline that follows belongs to the end of that line. */
  #endsWithReturn = false;
  #id = "";
  #event = "";
  #data: string[] = [];

  /** The messages that end in this chunk. */
  push(bytes: Uint8Array): readonly StreamMessage[] {
    const text = this.#decode(bytes);
    const [first = "", ...others] = text.split(LINE_END);
    this.#line += first;
    const messages: StreamMessage[] = [];
    // what follows the last end of a line is the beginning of the next one
    for (const next of others) {
      messages.push(...this.#endLine());
      this.#line = next;
    }
    return messages;
  }

  #decode(bytes: Uint8Array): string {
    const decoded = this.#decoder.decode(bytes, { stream: true });
    if (decoded === "") return "";
    const text = this.#endsWithReturn && decoded.startsWith("\n") ? decoded.slice(1) : decoded;
    this.#endsWithReturn = decoded.endsWith("\r");
    return text;
  }

  /** The message that an empty line ends. */
  #endLine(): readonly StreamMessage[] {
    if (this.#line !== "") {
      this.#readField(this.#line);
      return [];
    }
    const message = { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    return isEmpty ? [] : [message];
  }

  /** A line without a name is a comment. Names that are not known are ignored. */
  #readField(line: string): void {
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }
}

const MIN_RETRY_MS = 1_000;
const MAX_RETRY_MS = 10_000;

/** The time before the next attempt. @param failures one after another, at least 1. @param random from 0 to 1: viewers do not come all at once */
export function chooseRetryMs(failures: number, random: number): number {
  const boundMs = Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** (failures - 1));
  return MIN_RETRY_MS + (boundMs - MIN_RETRY_MS) * (0.5 + random / 2);
}
