import type { Reporter, TestModule } from "vitest/node";
import { closingLine } from "./counts.ts";

/** Vitest prints its counts in no fixed form. This prints one line, last of all, that scripts can read. */
export class ClosingLineReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      let own = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        // A test that was still pending when the run ended did not pass.
        counts[state === "pending" ? "failed" : state] += 1;
        if (state === "failed") own += 1;
      }
      // It did not load, or a hook around its tests failed: no test of its own may say so.
      if (module.state() === "failed" && own === 0) counts.failed += 1;
    }
    process.once("exit", () => console.log(closingLine(counts)));
  }
}
