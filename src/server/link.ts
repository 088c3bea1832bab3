/**
 * One connection, on any stream: lines in, lines out. The first line says who it is; a malformed one ends it.
 *
 *   new         it has not said hello
 *   sentenced   it showed no valid credential and is told so after a while; nothing more of it is read
 *   open        its calls are answered (calls.ts)
 *   tether      it keeps a session alive; nothing of it is read
 *   closed
 */

import { isId } from "../ids.ts";
import * as frames from "../protocol/frames.ts";
import type { ClientHello } from "../protocol/hello.ts";
import { decodeHello, encodeRefusal, ProtocolError } from "../protocol/hello.ts";
import { nestsDeeper } from "../protocol/lines.ts";
import type { Answer, ClaimId } from "../spi/driver.ts";
import type { Principal } from "./access.ts";
import { ANYBODY } from "./access.ts";
import { labelFrom } from "./border.ts";
import { Calls } from "./calls.ts";
import type { Origin } from "./door.ts";
import type { Hub } from "./hub.ts";
import type { Session } from "./session.ts";

/** What a link is given to speak over. */
export interface Stream {
  write(text: string): void;
  /** Ends it after what was written has left. */
  close(): void;
  /** Bytes that were written and have not left yet. Default: it is not known, and nothing is bounded by it. */
  unread?(): number;
  /** Nothing more is to be read from it for now (true), or again. Default: what comes is kept until it is looked at. */
  hold?(on: boolean): void;
}

/** A line is written at the latest when this much has gathered for it. */
const LINE_CHARS = 8_192;
/** Likewise while nobody else says anything: it is to work while we do. With others to serve writing often is only dear. */
const LONE_LINE_CHARS = 1_024;

const NO_LINES: readonly string[] = [];

const HTTP = /^[A-Z]{3,10} \S* ?HTTP\/\d/;
const HTTP_ANSWER = "this port speaks the Holdfast lock protocol, not HTTP\n";

export class Link {
  readonly origin: Origin;
  readonly #hub: Hub;
  readonly #stream: Stream;
  readonly #calls: Calls;
  #session: Session | null = null;
  #is: "new" | "sentenced" | "open" | "tether" | "closed" = "new";
  #out = "";
  #lineChars = LONE_LINE_CHARS;
  #verdict: ProtocolError | null = null;
  /** Lines that are not looked at yet: those before them are not done. */
  #said: readonly string[] = NO_LINES;
  /** It takes its turn with others (turns.ts), and is not read from. */
  #isHeld = false;
  // for the schedule of those who have not said hello
  dueAt = 0;
  heapIndex = -1;

  constructor(hub: Hub, stream: Stream, origin: Origin) {
    this.#hub = hub;
    this.#stream = stream;
    this.origin = origin;
    this.#calls = new Calls(hub, this);
  }

  /** On a Unix socket of this machine. */
  get local(): boolean {
    return this.origin.local;
  }

  /** Are its bytes still looked at? */
  get reads(): boolean {
    return this.#is === "new" || this.#is === "open";
  }

  /** Has it said more than could be done at once? Then it is not read from for now. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Are its calls still answered? */
  get isOpen(): boolean {
    return this.#is === "open";
  }

  /** Null until it has said hello. */
  get session(): Session | null {
    return this.#session;
  }

  /** Who it is. */
  get principal(): Principal {
    return this.#session?.principal ?? ANYBODY;
  }

  /** What it is told when its time to say hello has come; null: that it has come. */
  get verdict(): ProtocolError | null {
    return this.#verdict;
  }

  get isSentenced(): boolean {
    return this.#verdict !== null;
  }

  /** What one read has brought. What it brings about is written together, as far as it is not much. */
  lines(lines: readonly string[]): void {
    const now = this.#hub.clock.now();
    if (this.#session !== null) this.#session.heardAt = now;
    if (this.#isHeld) {
      this.#said = [...this.#said, ...lines];
      return;
    }
    this.#said = lines;
    if (this.work(this.#hub.turns.until(now))) return;
    this.#isHeld = true;
    this.#stream.hold?.(true);
    this.#hub.turns.add(this);
  }

  /** Does what it was told, in order, until then; false: there is more. */
  work(until: number): boolean {
    if (!this.reads) return true;
    this.#lineChars = this.#hub.speaker === this ? LONE_LINE_CHARS : LINE_CHARS;
    this.#hub.speaker = this;
    this.#hub.backend.begin?.();
    const isDone = this.#work(until);
    this.#hub.settle();
    if (isDone && this.#isHeld) {
      this.#isHeld = false;
      this.#stream.hold?.(false);
    }
    return isDone;
  }

  #work(until: number): boolean {
    for (let at = 0; this.reads; ) {
      try {
        if (this.#calls.isBusy) this.#calls.work(this.#session as Session, until);
        else if (at < this.#said.length) {
          this.#hear(this.#said[at++] as string);
          continue;
        } else break;
      } catch (error) {
        this.refuse(error);
      }
      if ((this.#calls.isBusy || at < this.#said.length) && this.#hub.clock.now() >= until) {
        this.#said = this.#said.slice(at);
        return false;
      }
    }
    this.#said = NO_LINES;
    return true;
  }

  #hear(line: string): void {
    if (this.#is === "new") this.#greet(line);
    else this.#calls.line(frames.decodeLine(line, this.#hub.start));
  }

  /** The stream has ended, by whichever side. */
  ended(): void {
    this.#close(false);
    this.#hub.settle();
  }

  /** Ends the connection with one line that says why. */
  refuse(error: unknown): void {
    this.#end(error, false);
  }

  /** The same, of a client that has done nothing to be given up for: what it holds stays until its leases end. */
  sever(error: ProtocolError): void {
    this.#end(error, true);
  }

  /** It is to be refused, but not yet. */
  sentence(verdict: ProtocolError): void {
    this.#is = "sentenced";
    this.#verdict = verdict;
  }

  /** There is no room for it. */
  turnAway(error: ProtocolError): void {
    this.#is = "closed";
    this.#stream.write(encodeRefusal(error));
    this.#stream.close();
  }

  /** Tells a client what became of its claim. */
  push(id: ClaimId, answer: Answer): void {
    if (this.#is === "open") this.send(frames.encodePush(id, frames.encodeAnswer(answer, 0)));
  }

  /** Tells a client, at once, that something may have changed for its claim. */
  nudge(id: ClaimId): void {
    if (this.#is !== "open") return;
    this.send(frames.encodeNudge(id));
    this.flush();
  }

  /** The server is going away: says so and ends. */
  drain(): void {
    if (this.#is === "open") this.send('["drain"]');
    this.flush();
    this.#is = "closed";
    this.#stream.close();
  }

  /** Adds a frame to what is written next. */
  send(frame: string): void {
    if (this.#is === "closed") return;
    if (this.#out === "") {
      this.#out = frame;
      this.#hub.dirty.push(this);
      return;
    }
    this.#out += `,${frame}`;
    if (this.#out.length > this.#lineChars) this.flush();
  }

  /** Writes at once what there is; ends the connection instead if too much waits to be read already. */
  flush(): void {
    if (this.#out === "") return;
    const line = `["${this.#hub.start}",${this.#out}]\n`;
    this.#out = "";
    if (this.#is !== "closed" && (this.#stream.unread?.() ?? 0) > this.#hub.limits.unreadBytes) {
      return this.sever(new ProtocolError("SLOW", "too much waits for a client that does not read"));
    }
    this.#stream.write(line);
  }

  #end(error: unknown, severed: boolean): void {
    if (this.#is === "closed") return;
    const known = error instanceof ProtocolError;
    this.#hub.refused(known ? error.code : "INTERNAL");
    if (!known) this.#hub.log("a connection failed", error);
    this.flush();
    if (this.#isClosed()) return;
    this.#stream.write(encodeRefusal(known ? error : { code: "INTERNAL", message: "the server failed; see its log" }));
    this.#close(severed);
    this.#stream.close();
  }

  /** As a call, since flush() may have closed it, which the compiler cannot know. */
  #isClosed(): boolean {
    return this.#is === "closed";
  }

  #close(severed: boolean): void {
    if (this.#is === "closed") return;
    this.#is = "closed";
    this.#hub.gone(this, this.#session, severed);
  }

  #greet(line: string): void {
    if (HTTP.test(line)) {
      const head = `HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: ${HTTP_ANSWER.length}\r\n`;
      this.#stream.write(`${head}Connection: close\r\n\r\n${HTTP_ANSWER}`);
      this.#close(false);
      this.#stream.close();
      return;
    }
    if (nestsDeeper(line, this.#hub.limits.depth)) throw new ProtocolError("PROTOCOL", "the first line is too deep");
    const hello = decodeHello(line);
    if (hello.probe === true) return this.#probed();
    if (!isId(hello.session))
      throw new ProtocolError("PROTOCOL", "hello: session must be 26 characters of a-z and 2-7");
    try {
      this.#enter(hello);
    } catch (error) {
      const isStranger = error instanceof ProtocolError && (error.code === "AUTH" || error.code === "LIMIT");
      if (!isStranger) throw error;
      return this.#hub.refuseSlowly(this, error);
    }
    this.#stream.write(this.#hub.welcome(this.local));
  }

  #enter(hello: ClientHello): void {
    if (hello.tether) {
      this.#session = this.#hub.tether(hello, this);
      this.#is = "tether";
    } else {
      this.#session = this.#hub.join({ ...hello, label: labelFrom(hello.label) }, this);
      this.#is = "open";
    }
  }

  /** Somebody only asks who answers here: a server that looks at its own socket. */
  #probed(): void {
    if (!this.local) throw new ProtocolError("UNSUPPORTED", "a probe needs a Unix socket");
    this.#stream.write(this.#hub.welcome(true));
    this.#close(false);
    this.#stream.close();
  }
}
