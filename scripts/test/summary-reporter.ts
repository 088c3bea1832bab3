import type { Reporter, TestModule } from "vitest/node";
import { formatFailure } from "./failures.ts";
import { formatSummary } from "./summary.ts";

/**
 * Vitest prints its counts in no fixed form. This prints one line, last of all, that scripts can read, and before it what
 * failed and why.
 */
export class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly { message: string; stack?: string }[]): void {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    const lines = unhandledErrors.flatMap((error) => formatFailure("an error that no test awaited", [error]));
    for (const module of modules) {
      let own = 0;
      for (const test of module.children.allTests()) {
        const { state, errors } = test.result();
        // A test that was still pending when the run ended did not pass.
        counts[state === "pending" ? "failed" : state] += 1;
        if (state === "failed") own += 1;
        if (state === "failed" || state === "pending") {
          const place = `${module.relativeModuleId} > ${test.fullName}`;
          lines.push(...formatFailure(place, errors ?? [{ message: "it did not end" }]));
        }
      }
      // It did not load, or a hook around its tests failed: no test of its own may say so.
      if (module.state() === "failed" && own === 0) {
        counts.failed += 1;
        lines.push(...formatFailure(module.relativeModuleId, module.errors()));
      }
    }
    process.once("exit", () => console.log([...lines, formatSummary(counts)].join("\n")));
  }
}
