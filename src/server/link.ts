/** One connection, on any stream: lines in, lines out. The first line says who it is; a malformed one ends it. */

import { isId } from "../ids.ts";
import * as frames from "../protocol/frames.ts";
import type { ClientHello } from "../protocol/hello.ts";
import { decodeHello, encodeRefusal, ProtocolError } from "../protocol/hello.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import type { Backend, Page, Soon } from "./backend.ts";
import { Refusal } from "./backend.ts";
import * as border from "./border.ts";
import type { Hub } from "./hub.ts";
import type { Session } from "./session.ts";

/** What a link is given to speak over. */
export interface Stream {
  write(text: string): void;
  /** Ends it after what was written has left. */
  close(): void;
}

/** A line is written at the latest when this much has gathered for it. */
const LINE_CHARS = 65_536;
/** A list costs more to answer than to ask for. */
const LISTS_A_LINE = 16;

const HTTP = /^[A-Z]{3,10} \S* ?HTTP\/\d/;
const HTTP_ANSWER = "this port speaks the Holdfast lock protocol, not HTTP\n";

export class Link {
  readonly #hub: Hub;
  readonly #backend: Backend;
  readonly #stream: Stream;
  readonly local: boolean;
  #session: Session | null = null;
  #is: "new" | "open" | "tether" | "closed" = "new";
  #out = "";
  #lists = 0;
  // for the schedule of those who have not said hello
  dueAt = 0;
  heapIndex = -1;

  constructor(hub: Hub, backend: Backend, stream: Stream, local: boolean) {
    this.#hub = hub;
    this.#backend = backend;
    this.#stream = stream;
    this.local = local;
  }

  /** Are its bytes still looked at? */
  get reads(): boolean {
    return this.#is === "new" || this.#is === "open";
  }

  /** What one read has brought. All that it brings about is written together. */
  lines(lines: readonly string[]): void {
    for (const line of lines) {
      if (!this.reads) break;
      try {
        this.#line(line);
      } catch (error) {
        this.refuse(error);
      }
    }
    this.#hub.settle();
  }

  /** The stream has ended, by whichever side. */
  ended(): void {
    this.#close();
    this.#hub.settle();
  }

  /** Ends the connection with one line that says why. */
  refuse(error: unknown): void {
    if (this.#is === "closed") return;
    const known = error instanceof ProtocolError;
    if (!known) this.#hub.log("a connection failed", error);
    this.flush();
    this.#stream.write(encodeRefusal(known ? error : { code: "INTERNAL", message: "the server failed; see its log" }));
    this.#close();
    this.#stream.close();
  }

  /** Tells a client what became of its waiting claim. */
  push(id: ClaimId, answer: Answer): void {
    if (this.#is === "open") this.#send(frames.encodePush(id, frames.encodeAnswer(answer, 0)));
  }

  /** Tells a client, at once, that something may have changed for its claim. */
  nudge(id: ClaimId): void {
    if (this.#is !== "open") return;
    this.#send(frames.encodeNudge(id));
    this.flush();
  }

  /** The server is going away: says so and ends. */
  drain(): void {
    if (this.#is === "open") this.#send('["drain"]');
    this.flush();
    this.#is = "closed";
    this.#stream.close();
  }

  flush(): void {
    if (this.#out === "") return;
    this.#stream.write(`["${this.#hub.start}",${this.#out}]\n`);
    this.#out = "";
  }

  #send(frame: string): void {
    if (this.#is === "closed") return;
    if (this.#out === "") {
      this.#out = frame;
      this.#hub.dirty.push(this);
      return;
    }
    this.#out += `,${frame}`;
    if (this.#out.length > LINE_CHARS) this.flush();
  }

  #close(): void {
    if (this.#is === "closed") return;
    this.#is = "closed";
    this.#hub.gone(this, this.#session);
  }

  #line(line: string): void {
    if (this.#is === "new") return this.#greet(line);
    const session = this.#session as Session;
    session.heardAt = this.#hub.clock.now();
    this.#lists = 0;
    const all = frames.decodeLine(line, this.#hub.start);
    for (let at = 1; at < all.length && this.#is === "open"; at++) {
      const frame = all[at];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      this.#frame(session, frame as readonly unknown[]);
    }
  }

  #greet(line: string): void {
    if (HTTP.test(line)) {
      const head = `HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: ${HTTP_ANSWER.length}\r\n`;
      this.#stream.write(`${head}Connection: close\r\n\r\n${HTTP_ANSWER}`);
      this.#close();
      this.#stream.close();
      return;
    }
    const hello: ClientHello = decodeHello(line);
    if (!isId(hello.session))
      throw new ProtocolError("PROTOCOL", "hello: session must be 26 characters of a-z and 2-7");
    if (hello.tether) {
      this.#session = this.#hub.tether(hello, this);
      this.#is = "tether";
    } else {
      this.#session = this.#hub.join({ ...hello, label: border.labelFrom(hello.label) }, this);
      this.#is = "open";
    }
    this.#stream.write(this.#hub.welcome(this.local));
  }

  #frame(session: Session, frame: readonly unknown[]): void {
    const verb = frame[0];
    const n = border.numberFrom(frame[1]);
    const backend = this.#backend;
    switch (verb) {
      case "claim":
        return this.#claim(session, n, border.claimFrom(frame, 2, session.label));
      case "renew": {
        const items = border.renewalsFrom(frame[2], session.label);
        return this.#answer(
          n,
          () => backend.renew(session, items),
          (answers) => this.#answersText(items, answers),
        );
      }
      case "release": {
        const items = border.leavesFrom(frame[2]);
        return this.#answer(n, () => backend.release(session, items), frames.encodeFlags);
      }
      case "detach": {
        const ids = border.idsFrom(frame[2]);
        return this.#answer(n, () => backend.detach(session, ids), frames.encodeFlags);
      }
      case "revoke": {
        const targets = border.revocationsFrom(frame[2]);
        return this.#answer(n, () => backend.revoke(session, targets), frames.encodeFlags);
      }
      case "list": {
        const [prefix, max, after] = border.pageFrom(frame[2], frame[3], frame[4]);
        return this.#answer(n, () => this.#list(prefix, max, after), encodePage);
      }
      case "reclaim": {
        const items = border.reclaimedFrom(frame[2], session.label);
        const ids = items.map(({ claim }) => claim);
        const last = frame[3] !== false;
        return this.#answer(
          n,
          () => backend.reclaim(session, items, last),
          (answers) => this.#answersText(ids, answers),
        );
      }
      case "ping":
        return this.#send(frames.encodeOk(n, "[]"));
      default:
        throw new ProtocolError("PROTOCOL", "no such frame");
    }
  }

  /** As #answer(), without a closure: most frames are claims. */
  #claim(session: Session, n: number, claim: Claim): void {
    let answer: Soon<Answer>;
    try {
      answer = this.#backend.claim(session, claim);
    } catch (error) {
      return this.#send(this.#errorText(n, error));
    }
    if (!(answer instanceof Promise)) return this.#send(frames.encodeOk(n, this.#answerText(claim.id, answer)));
    const late = answer;
    this.#answer(
      n,
      () => late,
      (result) => this.#answerText(claim.id, result),
    );
  }

  #list(prefix: string, max: number, after: string | undefined): Soon<Page> {
    if (++this.#lists > LISTS_A_LINE) throw new Refusal("LIMIT", `at most ${LISTS_A_LINE} list frames in a line`);
    return this.#backend.list(prefix, max, after);
  }

  /** Answers at once if the result is there, else when it is. */
  #answer<T>(n: number, call: () => Soon<T>, encode: (result: T) => string): void {
    try {
      const result = call();
      if (!(result instanceof Promise)) return this.#send(frames.encodeOk(n, encode(result)));
      result.then(
        (late) => {
          this.#send(frames.encodeOk(n, encode(late)));
          this.#hub.settle();
        },
        (error: unknown) => {
          this.#send(this.#errorText(n, error));
          this.#hub.settle();
        },
      );
    } catch (error) {
      if (error instanceof ProtocolError) throw error;
      this.#send(this.#errorText(n, error));
    }
  }

  #errorText(n: number, error: unknown): string {
    if (error instanceof Refusal) return frames.encodeError(n, error.code, error.message);
    this.#hub.log("a call failed", error);
    return frames.encodeError(n, "INTERNAL", "the server failed; see its log");
  }

  #answerText(id: ClaimId, answer: Answer): string {
    return frames.encodeAnswer(answer, answer.state === "waiting" ? this.#backend.arrivalOf(id) : 0);
  }

  #answersText(claims: readonly { readonly id: ClaimId }[], answers: readonly Answer[]): string {
    let text = "";
    for (const [at, answer] of answers.entries()) {
      text += `${at === 0 ? "" : ","}${this.#answerText((claims[at] as { id: ClaimId }).id, answer)}`;
    }
    return `[${text}]`;
  }
}

function encodePage(page: Page): string {
  return `[[${page.views.map(frames.encodeView).join()}],${page.more}]`;
}
