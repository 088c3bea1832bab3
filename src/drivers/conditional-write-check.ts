/** A check of `holdfast doctor`: does the store keep the promise on which all of its locks rest? */

import type { Check } from "../spi/driver.ts";
import type { DocumentStore } from "./document/store.ts";

/** No document of a lock. */
const NAME = "check";
const WRITE_COUNT = 20;
const DOCUMENT_LENGTH = 1_000;
const TIMEOUT_MS = 10_000;

/** Writes one document 20 times at once on one version: of these, one may succeed. */
export async function checkConditionalWrites(store: DocumentStore): Promise<Check> {
  const name = "conditional writes";
  try {
    const before = await store.read(NAME, AbortSignal.timeout(TIMEOUT_MS));
    const version = before?.version ?? null;
    const writes = Array.from({ length: WRITE_COUNT }, () =>
      store.write(
        NAME,
        crypto.getRandomValues(new Uint8Array(DOCUMENT_LENGTH)),
        version,
        AbortSignal.timeout(TIMEOUT_MS),
      ),
    );
    const results = await Promise.allSettled(writes);
    const count = results.filter(({ status, ...rest }) => "value" in rest && rest.value !== "conflict").length;
    if (count <= 1)
      return { status: "ok", name, message: `of ${WRITE_COUNT} at once on one version, not more than one succeeded` };
    return {
      status: "fail",
      name,
      message: `of ${WRITE_COUNT} at once on one version, ${count} succeeded: two processes may hold one lock`,
      hint: "this store, or what is between it and this process, ignores the condition of a write: do not keep locks in it",
    };
  } catch (error) {
    return { status: "unknown", name, message: `not tried: ${(error as Error).message}` };
  }
}
