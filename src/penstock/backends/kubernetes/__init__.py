"""The backend `kubernetes`: each attempt is a Job on a cluster. Found by the registry; called by the engine.

options     what the user has set: context, namespace, image, volume …
names       names and labels of a Job. Pure
work        an attempt's spec -> what its pods do, with inputs and code in the artifact store
parts       the same for a step of several containers
packing     what a pod is given, and what is taken out of it
programs    what a pod does, as plain data
shell       the lines of shell around a command, where there must be some. Pure
manifest    that -> the Job. Pure
scheduled   the Job, with the marks of a queue of the cluster's scheduler, if there is one. Pure
outcome     a Job and its pods as they are seen -> how far the attempt is, and why. Pure
cluster     the API server: one watch of Jobs, one of pods, create, adopt, delete
logs        what containers print, while they run and at their end
attempt     one attempt from start to end
pool        many small tasks: calls of functions, given to warm pods
warm        one warm pod: its Job, its letters, its calls
mailbox     the letters, in the artifact store
serve       the program in a warm pod
backend     all attempts of an engine
lead        the program in a pod that tells the parts of a step when to run
in_pod      the program in the pods that fetches inputs, calls functions, and stores outputs
"""
