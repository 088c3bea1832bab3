/** The environment of the command. */

import type { HeldLock } from "./held-lock.ts";
import { ANCESTORS_VARIABLE, REFERENCE_VARIABLE, readReferences } from "./inherited-locks.ts";

/**
 * The environment of `holdfast` itself, with the held keys, their tokens, the reference and the store (`storeUrl`: the value
 * of --url), but without credentials: with them the child could act in the name of this user.
 */
export function createChildEnvironment(
  env: NodeJS.ProcessEnv,
  lock: HeldLock,
  storeUrl: string | undefined,
): NodeJS.ProcessEnv {
  const child: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(env)) if (!name.startsWith("HOLDFAST_CREDENTIAL")) child[name] = value;
  const url = storeUrl ?? env.HOLDFAST_URL;
  if (url !== undefined) child.HOLDFAST_URL = url.replace(/\/\/[^/@]*@/, "//");
  // a key contains no line feed, so one key per line is unambiguous
  child.HOLDFAST_KEY = lock.keys.join("\n");
  if (lock.token === null) delete child.HOLDFAST_TOKEN;
  else child.HOLDFAST_TOKEN = String(lock.token);
  if (lock.tokens === null) delete child.HOLDFAST_TOKENS;
  else child.HOLDFAST_TOKENS = lock.tokens.join("\n");
  const ancestors = readReferences(env).filter((reference) => reference !== lock.reference);
  child[REFERENCE_VARIABLE] = lock.reference;
  if (ancestors.length === 0) delete child[ANCESTORS_VARIABLE];
  else child[ANCESTORS_VARIABLE] = ancestors.join(" ");
  return child;
}
