/**
 * `npm run bench -- --quick CASE`: to see that all runs, in little time. Nothing of it is a measurement, and no table
 * is written.
 */
export const IS_QUICK_RUN: boolean = process.argv.includes("--quick");
