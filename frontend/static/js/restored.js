// Whether the browser has put back what was typed before: after Back, Forward and a reload.

/** @param {PageTransitionEvent} event of `pageshow` */
export function isRestored(event) {
  const [visit] = performance.getEntriesByType("navigation");
  return event.persisted || (visit instanceof PerformanceNavigationTiming && visit.type !== "navigate");
}
