/** What is selected, as the widget's traits (../../widget.py) have it. Global. */
interface WidgetTraits { step: number; token: number | null; node: number | null }
