"""Words that unrelated prompts will hold; the tokenizer learns them beside the tasks' text."""

# Frequent in technical English, most frequent first.
ENGLISH = """
the is to of and in for be if that or an are as object it with not by this class file from value string name
can on return function will module list all used method we which line number argument other default at type
data only when no one may have use path code should any exception instance set arguments but bytes so given
has first values objects result must same then using methods also its new case was called statement command
key defined version returns text than names attribute time error current except read more raise sequence call
two dictionary like up there lines into returned they mode integer empty you types before format do context
node message try following where strings true directory block non after import option stack example expression
each functions get raised end support does encoding classes output single files see last server arg user
characters such thread filename input address else size specified been attributes passed section either always
some most test open already optional order keyword print built standard length otherwise without here write
available next socket instead base start don parameter doesn header until zero point namespace source local
special stream possible match because copy these variable between both add them their mapping operation found
pattern character items just range defaults containing out frame created check byte need item level global
descriptor process form variables executed response binary added information operations being make cannot
clause whether keys field since target negative help part contains different protocol through modules numbers
errors prefix buffer instances index sequences want pickle way left about even io create member program while
flags digits suite raises second within would operand state bound over calls run system syntax decimal python
present parameters flag close access provided position options definition another implement float change
newline done false uses reference specific multiple pass precision subclass positional needed contents
constructor locale equal old comparison hash package those count directly unless common including how calling
equivalent back elements matching bit long sign right extension normal exist find matches mailbox integers
execution itself could underlying raw interpreter identifier iterable space supported fields entry interface
exponent means handle traceback port push updated now group many timeout breakpoint once iterator details
above below ignore table join trailing occurs original were via examples root inspect cases what top reading
exceptions least yield provide threads doctest three directories assignment lists exists finally still
callable cache numeric allow contain written loop based continue append commands connection expressions during
behavior globals isn generator define members stdout pair considered necessary body named remove writing attrs
regular results break width changes action lineno override valid compare whitespace too opcode our year
required followed useful usage lambda arbitrary request log existing appropriate provides exit literal
actually stop times memo manager removed complex implemented internal step imported closed side replace
defines avoid search absolute tests real work sure positive paths host assigned tuples never date archive less
allows place async style formatting conversion parser relative signature rather allowed child convert handler
compute separator fill build simple slice explicitly lock platform exactly leading supports whose descriptors
thing changed offset link compression heap statements evaluated operator messages similar made subclasses
environment stdin condition currently split round enum escape scope previous mutable literals converted
described later look spaces traverse info starting per power supplied subject debugger full tar under compile
possibly handling opened random very bits include annotations stored abc docstring fails own overridden note
release little day junk actual setting additional abstract blocks com alias extra treated lookup sets takes
main rounding https endian references well wrapped invoked might handled generated parent nested parse ignored
exact again exp algorithm difference running expected mean container entries representing strict extended
determined invalid event compiled skip indicates nothing metaclass know title resulting collections library
specifies future recent anything versions markobject rules various points builtin control caller stderr pdb
signal your digit sort month week msg diff final usually total needs runtime though correct formatted blank
display won reserved client network opcodes taken store etc unchanged boolean decorator fixed omitted fail
site large keep decode strip tree accept particular pairs sorted words double returning bin better send starts
addition kind executable element id around frames readline giving parts content public td topmost description
effect yields language dir interpreted known custom appear every datetime encoded temporary according
debugging creating property patterns us much locals against take tab sub pathname chunk typ cause feature
meaning inside binding works gives failure printed requires correctly script yet builtins off ve initial
readable platforms failed definitions operands coroutine registered floating del owner derived bases
arithmetic operators division testing deleted interactive parsing compressed threading queue addresses symlink
follows detail delete represent really comparisons missing wrapper blocking down memory update something map
decoded wait xc bpo trace longer passing checking column systems everything tell short stat immutable abs
typically separate entire normally execute caught immediately isinstance hashable cmd unique suffix events
complete nodes symbolic drive insert occur modified private outside happen notation contained indicating
broken best subprocess env audio seconds refer remaining lower specify quotes breakpoints beginning plus
packages compiler constants efficient select small unknown decoder bp password keywords able desired smaller
replaced terminated rest related filesystem ll actions free larger generic finite safe bugs distribution tr
dataclass depending square hand apply iteration mappings represents super adding general semantics determine
explicit max compared makes loaded sample
"""

# Python's keywords and built-in functions.
PYTHON = """
False None True and as assert async await break class continue def del elif else except finally for from
global if import in is lambda nonlocal not or pass raise return try while with yield abs aiter all anext any
ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex copyright credits delattr
dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash help hex
id input int isinstance issubclass iter len license list locals map max memoryview min next object oct open
ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super
tuple type vars zip
"""
