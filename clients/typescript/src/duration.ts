/** Durations as the API writes them. */

const UNIT_MS: Record<string, number> = { ns: 1e-6, us: 1e-3, "µs": 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration as text: a number and a unit, such as `250ms`, `30s`, `1.5s`, `36h`, or a sum of them, such as `1m30s`. */
export type Duration = string;

/** The milliseconds of an option that is a duration. The error of a wrong one names it. */
export function durationOf(name: string, duration: Duration): number {
    try {
        return milliseconds(duration);
    } catch (error) {
        throw new RangeError(`${name}: ${(error as Error).message}`);
    }
}

/** Throws if the option is there, and is no duration. */
export function checkDuration(name: string, duration: Duration | undefined): void {
    if (duration !== undefined) {
        durationOf(name, duration);
    }
}

/** The milliseconds of a duration. Throws a `RangeError` if the text is not a duration. */
export function milliseconds(duration: Duration): number {
    if (typeof duration !== "string") {
        throw new RangeError(`${String(duration)} is not a duration; write a text of a number and a unit, such as "250ms", "30s" or "1m30s"`);
    }
    const part = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)/y;
    let sum = 0;
    do {
        const match = part.exec(duration);
        if (match === null) {
            throw new RangeError(`"${duration}" is not a duration; write a number and a unit, such as 250ms, 30s or 1m30s`);
        }
        sum += Number(match[1]) * (UNIT_MS[match[2] ?? ""] ?? NaN);
    } while (part.lastIndex < duration.length);
    return sum;
}
