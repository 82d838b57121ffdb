// Times in the user's own time zone. The server writes UTC, marked as such; this replaces it with the local time.

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };
const clock = new Intl.DateTimeFormat("sv-SE", /** @type {any} */ (TIME));
const day = new Intl.DateTimeFormat("sv-SE", /** @type {any} */ (DAY));
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

/** The full time, such as "2026-11-21 14:05:12 CET". @param {Date} moment */
function exact(moment) {
  const name = zone.formatToParts(moment).find((part) => part.type === "timeZoneName")?.value ?? "";
  return `${day.format(moment)} ${clock.format(moment)} ${name}`;
}

/** The time of day. @param {Date} moment */
export const timeOfDay = (moment) => clock.format(moment);

/** The time of day; with its date unless that is today's. @param {Date} moment */
export function short(moment) {
  const date = day.format(moment);
  return date === day.format(new Date()) ? clock.format(moment) : `${date} ${clock.format(moment)}`;
}

/**
 * Every <time datetime> below a part of the page: an age keeps its words and gets the exact moment on hover.
 * data-form="clock" is the time of day alone, "day" the date alone.
 * @param {ParentNode} part
 */
export function localise(part) {
  for (const time of part.querySelectorAll("time[datetime]:not([data-local])")) {
    const element = /** @type {HTMLTimeElement} */ (time);
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    element.dataset.local = "";
    element.title = exact(moment);
    if (element.dataset.age !== undefined || element.dataset.running !== undefined) continue;
    const { form = "short" } = element.dataset;
    element.textContent = form === "clock" ? clock.format(moment) : form === "day" ? day.format(moment) : short(moment);
  }
}
