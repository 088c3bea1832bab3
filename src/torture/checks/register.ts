/**
 * Register: the tokens that the fenced register has accepted never fall, and one token has one holder; so nothing is accepted after a later
 * holder has entered. It refuses none that believes at that moment that it holds.
 */

import type { History } from "../operations.ts";
import { beliefOf, operationId } from "../operations.ts";
import type { Findings } from "./findings.ts";

export interface LateWrites {
  readonly staleWritesRefused: number;
  readonly staleWritesAccepted: number;
  readonly staleWritesUnfenced: number;
}

export function checkRegister({ register, operations, workers }: History, findings: Findings): LateWrites {
  const byId = new Map(operations.map((record) => [operationId(record), record]));
  const lastEntered = new Map<string, string>();
  const highest = new Map<string, { readonly token: bigint; readonly id: string }>();
  let staleWritesRefused = 0;
  let staleWritesAccepted = 0;
  let staleWritesUnfenced = 0;
  for (const { event, at, key, accepted, token: text, ...operation } of register) {
    const id = operationId(operation);
    const record = byId.get(id);
    if (record === undefined) continue;
    if (event === "enter") lastEntered.set(key, id);
    else if (lastEntered.get(key) !== id) staleWritesUnfenced++;
    if (!accepted) {
      if (event === "write") staleWritesRefused++;
      const belief = beliefOf(record, workers);
      if (belief !== null && at >= belief.from && at < belief.to)
        findings.add("register", at, key, [record], "the register refused a holder, whose token was not the highest");
      continue;
    }
    if (text === null) continue;
    const token = BigInt(text);
    const last = highest.get(key);
    if (last !== undefined && (token < last.token || (token === last.token && id !== last.id))) {
      if (event === "write") staleWritesAccepted++;
      const other = byId.get(last.id);
      findings.add(
        "register",
        at,
        key,
        [...(other === undefined ? [] : [other]), record],
        `the register accepted the token ${token} from one holder after ${last.token} from another`,
      );
      continue;
    }
    highest.set(key, { token, id });
  }
  return { staleWritesRefused, staleWritesAccepted, staleWritesUnfenced };
}
