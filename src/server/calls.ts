/** The calls of one connection, answered: frames in, replies out as each is ready. */

import * as frames from "../protocol/frames.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import type { Page, Soon } from "./backend.ts";
import { Refusal } from "./backend.ts";
import * as border from "./border.ts";
import type { Hub } from "./hub.ts";
import type { Link } from "./link.ts";
import type { Session } from "./session.ts";

export class Calls {
  readonly #hub: Hub;
  readonly #link: Link;
  /** `list` frames in this line. */
  #lists = 0;
  /** Those that have no answer yet. */
  #listing = 0;

  constructor(hub: Hub, link: Link) {
    this.#hub = hub;
    this.#link = link;
  }

  /** All frames of a line, behind its start id. @throws ProtocolError at the first that is malformed */
  line(session: Session, all: readonly unknown[]): void {
    this.#lists = 0;
    if (all.length - 1 > this.#hub.limits.frames) {
      throw new ProtocolError("LIMIT", `a line has at most ${this.#hub.limits.frames} frames`);
    }
    for (let at = 1; at < all.length && this.#link.isOpen; at++) {
      const frame = all[at];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      try {
        this.#frame(session, frame as readonly unknown[]);
      } catch (error) {
        // too much of something: the call's own affair
        if (!(error instanceof Refusal)) throw error;
        this.#link.send(this.#errorText(frame[1] as number, error));
      }
    }
  }

  #frame(session: Session, frame: readonly unknown[]): void {
    const verb = frame[0];
    const n = border.numberFrom(frame[1]);
    const { backend, limits } = this.#hub;
    switch (verb) {
      case "claim":
        return this.#claim(session, n, border.claimFrom(frame, 2, session.label, limits));
      case "renew": {
        const items = border.renewalsFrom(frame[2], session.label, limits);
        return this.#answer(
          n,
          () => backend.renew(session, items),
          (answers) => this.#answersText(items, answers),
        );
      }
      case "release": {
        const items = border.leavesFrom(frame[2], limits);
        return this.#answer(n, () => backend.release(session, items), frames.encodeFlags);
      }
      case "detach": {
        const ids = border.idsFrom(frame[2], limits);
        return this.#answer(n, () => backend.detach(session, ids), frames.encodeFlags);
      }
      case "revoke": {
        const targets = border.revocationsFrom(frame[2], limits);
        return this.#answer(n, () => backend.revoke(session, targets), frames.encodeFlags);
      }
      case "list": {
        const [prefix, max, after] = border.pageFrom(frame[2], frame[3], frame[4], limits);
        return this.#answer(n, () => this.#list(session, prefix, max, after), encodePage);
      }
      case "reclaim": {
        const items = border.reclaimedFrom(frame[2], session.label, limits);
        const ids = items.map(({ claim }) => claim);
        const last = frame[3] !== false;
        return this.#answer(
          n,
          () => backend.reclaim(session, items, last),
          (answers) => this.#answersText(ids, answers),
        );
      }
      case "ping":
        return this.#link.send(frames.encodeOk(n, "[]"));
      default:
        if (this.#hub.tools?.frame(this.#link, verb, n, frame) === true) return;
        throw new ProtocolError("PROTOCOL", "no such frame");
    }
  }

  /** As #answer(), without a closure: most frames are claims. */
  #claim(session: Session, n: number, claim: Claim): void {
    let answer: Soon<Answer>;
    try {
      answer = this.#hub.backend.claim(session, claim);
    } catch (error) {
      return this.#link.send(this.#errorText(n, error));
    }
    if (!(answer instanceof Promise)) {
      return this.#link.send(frames.encodeOk(n, this.#answerText(claim.id, answer)));
    }
    const late = answer;
    this.#answer(
      n,
      () => late,
      (result) => this.#answerText(claim.id, result),
    );
  }

  #list(session: Session, prefix: string, max: number, after: string | undefined): Soon<Page> {
    const { lists } = this.#hub.limits;
    if (++this.#lists > lists || this.#listing >= lists) throw new Refusal("LIMIT", `at most ${lists} lists at a time`);
    const page = this.#hub.backend.list(session, prefix, max, after);
    if (!(page instanceof Promise)) return page;
    this.#listing++;
    return page.finally(() => {
      this.#listing--;
    });
  }

  /** Answers at once if the result is there, else when it is. */
  #answer<T>(n: number, call: () => Soon<T>, encode: (result: T) => string): void {
    const link = this.#link;
    try {
      const result = call();
      if (!(result instanceof Promise)) return link.send(frames.encodeOk(n, encode(result)));
      result.then(
        (late) => {
          link.send(frames.encodeOk(n, encode(late)));
          this.#hub.settle();
        },
        (error: unknown) => {
          link.send(this.#errorText(n, error));
          this.#hub.settle();
        },
      );
    } catch (error) {
      if (error instanceof ProtocolError) throw error;
      link.send(this.#errorText(n, error));
    }
  }

  #errorText(n: number, error: unknown): string {
    this.#hub.refused(error instanceof Refusal ? error.code : "INTERNAL");
    if (error instanceof Refusal) return frames.encodeError(n, error.code, error.message);
    this.#hub.log("a call failed", error);
    return frames.encodeError(n, "INTERNAL", "the server failed; see its log");
  }

  #answerText(id: ClaimId, answer: Answer): string {
    return frames.encodeAnswer(answer, answer.state === "waiting" ? this.#hub.backend.arrivalOf(id) : 0);
  }

  #answersText(claims: readonly { readonly id: ClaimId }[], answers: readonly (Answer | undefined)[]): string {
    let text = "";
    for (const [at, answer] of answers.entries()) {
      if (at > 0) text += ",";
      text += answer === undefined ? "null" : this.#answerText((claims[at] as { id: ClaimId }).id, answer);
    }
    return `[${text}]`;
  }
}

function encodePage(page: Page): string {
  return `[[${page.views.map(frames.encodeView).join()}],${page.more}]`;
}
