/** Faults in what is told of locks: a key in a metric, a request that is lost for its events. */

import type { Mutant } from "./mutants.ts";

export const OBSERVABILITY_MUTANTS: readonly Mutant[] = [
  {
    file: "src/opentelemetry/attributes.ts",
    tests: "test/unit/opentelemetry",
    name: "the key as an attribute of a request without a template",
    find: "const template = event.keyTemplate ?? applyTemplate(event.keys, keyTemplate);",
    replace: 'const template = event.keyTemplate ?? applyTemplate(event.keys, keyTemplate) ?? event.keys.join(", ");',
  },
  {
    file: "src/opentelemetry/spans.ts",
    tests: "test/unit/opentelemetry",
    name: "a span that does not tell of the loss of its lock",
    find: "    if (lock.signal.aborted) {",
    replace: "    if (lock.signal.aborted && lock.keys.length === 0) {",
  },
  {
    file: "src/client/local-queue.ts",
    tests: "test/unit/client/events.test.ts",
    name: "a request that starts a claim although a listener has withdrawn it",
    find: "    if (waiter.queue === null) return;",
    replace: "",
  },
];
