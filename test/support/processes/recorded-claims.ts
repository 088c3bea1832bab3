/**
 * Claims of a lock server with leases of a day, and what their client was told of each: one that was granted must be there
 * after any restart, one whose release was answered must not, and tokens rise. One claim at a time for each key.
 */

import { setTimeout as delay } from "node:timers/promises";
import { randomId } from "../../../src/util/ids.ts";
import type { RawAddress, RawAnswer } from "../raw-client.ts";
import { RawClient } from "../raw-client.ts";
import type { SeededRandom } from "../seeded-random.ts";

const DAY_MS = 86_400_000;
const MAX_PAUSE_MS = 8;

interface RecordedClaim {
  readonly id: string;
  /** unknown: the last call had no answer. */
  state: "unknown" | "held" | "released";
  token: bigint;
  isDetached: boolean;
}

export class RecordedClaims {
  readonly faults: string[] = [];
  /** Calls that were answered. */
  answers = 0;
  readonly #address: RawAddress;
  readonly #random: SeededRandom;
  readonly #session = randomId();
  readonly #claims = new Map<string, RecordedClaim | null>();
  readonly #highest = new Map<string, bigint>();

  constructor(address: RawAddress, keys: readonly string[], random: SeededRandom) {
    this.#address = address;
    this.#random = random;
    for (const key of keys) this.#claims.set(key, null);
  }

  /** Claims, detaches and releases until the server ends the connection, or `isOver` is true. */
  async work(isOver: () => boolean = () => false): Promise<void> {
    const client = await this.#connect();
    await Promise.all([...this.#claims.keys()].map((key) => this.#workOn(client, key, isOver)));
    client.end();
  }

  /** After a restart: what was promised before is true. */
  async verify(): Promise<void> {
    const client = await this.#connect();
    const other = await RawClient.open(this.#address);
    await other.call("reclaim", [], true);
    for (const [key, claim] of this.#claims) {
      if (claim?.state === "held") {
        const [answer] = (await client.call("renew", [claim.id])) as [RawAnswer | null];
        if (answer?.[0] !== "held" || BigInt(String(answer[1])) !== claim.token)
          this.faults.push(`${key} was granted with ${claim.token}, but is ${JSON.stringify(answer)} after a restart`);
        const [state] = await other.claim(randomId(), key, 1_000, { wait: false });
        if (state === "held") this.faults.push(`${key} was granted twice`);
      } else if (claim?.state === "unknown") {
        await client.call("release", [[claim.id, DAY_MS]]);
        claim.state = "released";
      }
    }
    client.end();
    other.end();
  }

  async #connect(): Promise<RawClient> {
    const client = await RawClient.open(this.#address, { session: this.#session });
    await client.call("reclaim", [], true);
    return client;
  }

  async #workOn(client: RawClient, key: string, isOver: () => boolean): Promise<void> {
    try {
      while (!isOver() && !client.isClosed) {
        const claim = this.#claims.get(key) ?? null;
        if (claim === null || claim.state === "released") await this.#claim(client, key);
        else if (!claim.isDetached && this.#random.chance(0.2)) await this.#detach(client, claim);
        else if (this.#random.chance(0.6)) await this.#release(client, claim);
        await delay(this.#random.int(MAX_PAUSE_MS));
      }
    } catch (error) {
      // the server has ended
      if (!/^closed: /.test((error as Error).message)) throw error;
    }
  }

  async #claim(client: RawClient, key: string): Promise<void> {
    const claim: RecordedClaim = { id: randomId(), state: "unknown", token: 0n, isDetached: false };
    this.#claims.set(key, claim);
    const [state, token, pause] = await client.claim(claim.id, key, DAY_MS, { wait: false });
    this.answers++;
    if (state !== "held") {
      claim.state = "released";
      // in a recovery nothing is granted
      if (!Array.isArray(pause)) this.faults.push(`${key} was released, but is held after a restart`);
      return;
    }
    claim.state = "held";
    claim.token = BigInt(String(token));
    if (claim.token <= (this.#highest.get(key) ?? 0n))
      this.faults.push(`${key} was granted with ${claim.token}, not above ${this.#highest.get(key)}`);
    this.#highest.set(key, claim.token);
  }

  async #detach(client: RawClient, claim: RecordedClaim): Promise<void> {
    await client.call("detach", [claim.id]);
    this.answers++;
    claim.isDetached = true;
  }

  async #release(client: RawClient, claim: RecordedClaim): Promise<void> {
    claim.state = "unknown";
    await client.release(claim.id);
    this.answers++;
    claim.state = "released";
  }
}
