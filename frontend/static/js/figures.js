// Formats of numbers, with the same rules as controlplane/templatetags/figures.py. Independent of the DOM.

const NOTHING = "–";

/** Three significant digits. @param {number} number */
export function significant(number, digits = 3) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  let text;
  if (size >= 1e7 || size < 1e-4) {
    const [mantissa, exponent] = number.toExponential(digits - 1).split("e");
    text = `${Number(mantissa)}e${Number(exponent)}`;
  } else if (Number.isInteger(number) || size >= 10 ** (digits - 1)) {
    text = (Math.sign(number) * Math.round(size)).toLocaleString("en-US");
  } else {
    text = number.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
  }
  return text.replace("-", (_, at) => (at === 0 ? "−" : "-"));
}

/** @param {number} number */
export function si(number) {
  for (const [limit, letter] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (Math.abs(number) >= limit) return significant(number / limit) + letter;
  }
  return significant(number);
}

/** Seconds in the two largest units. @param {number} seconds */
export function duration(seconds) {
  if (seconds > 0 && seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds > 0 && seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(seconds);
  for (const [above, big, below, small] of /** @type {[number, string, number, string][]} */ ([
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ])) {
    if (whole >= above) {
      const rest = Math.floor((whole % above) / below);
      return `${Math.floor(whole / above)} ${big}${rest ? ` ${rest} ${small}` : ""}`;
    }
  }
  return `${whole} s`;
}

/** An estimated duration, rounded to its accuracy. @param {number} seconds */
export function about(seconds) {
  const step = seconds >= 36000 ? 3600 : seconds >= 5400 ? 600 : seconds >= 90 ? 60 : 5;
  return duration(Math.max(step, Math.round(seconds / step) * step));
}

/** The age of a moment in its largest unit. @param {number} seconds */
export function age(seconds) {
  for (const [above, unit] of /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"]])) {
    if (seconds >= above) return `${Math.floor(seconds / above)} ${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

/** Whole seconds that have passed, as a duration. @param {number} seconds */
export function elapsed(seconds) {
  return duration(Math.max(0, Math.floor(seconds)));
}

/**
 * A value as [figure, unit] in a chart's or tile's format.
 * @param {number | null | undefined} value @param {string} format @returns {[string, string]}
 */
export function figure(value, format) {
  if (typeof value !== "number" || !Number.isFinite(value)) return [NOTHING, ""];
  switch (format) {
    case "percent":
      return [significant(value * 100, Math.abs(value) < 0.1 ? 2 : 3), "%"];
    case "percent100":
      return [significant(value), "%"];
    case "seconds":
      return [significant(value), "s"];
    case "mib":
      return value >= 1024 ? [significant(value / 1024), "GiB"] : [significant(Math.round(value)), "MiB"];
    case "rate":
      return [si(value), "tok/s"];
    case "tokens":
      return [significant(value), "tok"];
    case "watts":
      return [significant(value), "W"];
    default:
      return [significant(value), ""];
  }
}

/** A signed difference: small ones in plain decimals, still smaller ones without a sign.
 * @param {number} value */
export function change(value) {
  const sign = value > 0 ? "+" : value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (size > 0 && size < 1e-6) return "±0";
  if (size > 0 && size < 1e-4) return sign + size.toFixed(1 - Math.floor(Math.log10(size))).replace(/0+$/, "");
  return sign + significant(size, 2);
}
