/* What ``api/doctor`` answers (../../doctor/doctor_page.py). Global. */

/** Acceptance by tokens seen, and what a doubling of them brings (decoders/study/measure/learning_curve.py). */
interface LearningCurve { points: [number, number][]; doubling: number; low: number; high: number }
interface DoctorPart { id: string; title: string; kind: string; own: boolean; curve: LearningCurve | null }
/** A cause with its number, the control that isolates it, and the sentence that says what to change. */
interface DoctorFinding { level: string; cause: string; number: string; control: string; advice: string; gain: number }
/** A control's outcome (``specviz.extras.measure.doctor.controls.ControlOutcome``). */
interface DoctorControl {
  cause: string; change: string; length: number; conditional: number[]; by_position: number[]; gain: number; z: number;
  unit: string; places: number; tried: number;
}
interface DoctorReport {
  model: string; part: string; texts: number; places: number; temperature: number; base: DoctorControl; beta: number;
  outside: number; controls: DoctorControl[]; findings: DoctorFinding[]; skipped: string[];
  verdict: string; state: string;
}
/** An examination: queued, running, done, stopped or failed. */
interface DoctorCard {
  id: string; title: string; model: string; state: string; done: number; total: number; words: string; error: string;
  verdict: string;
}
interface DoctorAnswer {
  model: string; reason: string; parts: DoctorPart[]; sets: Record<string, string>; examinations: DoctorCard[];
}
interface DoctorProgress extends DoctorCard { report: DoctorReport | null }
